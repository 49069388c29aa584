"""Will a run fit: what a model asks of memory, what the machine has, and what to change."""
