"""Generation: one protocol, one module an engine."""
