"""Our rules in other trainers: `trl.py` is a GRPOTrainer of TRL's that trains on m of n rollouts.

The package needs numpy and that trainer alone: no Hydra, no config. How to use it, and the rules
without any trainer, is in its README.
"""
