"""Where the jobs of a sweep run: this machine, Slurm or Ray."""
