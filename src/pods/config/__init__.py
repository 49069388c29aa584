"""The config of a run: its keys, how values are parsed and checked, and how Hydra composes them.

Values live in `conf/`, not here. Start reading in `schema.py`, `task_keys.py` and `method_keys.py`,
which declare every key; `parse.py` checks single keys, `checks.py` and `task_checks.py` keys that
must fit together, `inputs.py` looks for what a run needs, and `compose.py` reads `conf/`.
"""
