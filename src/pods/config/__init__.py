"""The config of a run: its keys, how values are parsed and checked, and how Hydra composes them.

Values live in `conf/`, not here. Start reading in `schema.py` and `method_keys.py`, which declare
every key; `parse.py` checks single keys, `checks.py` keys that must fit together, and `compose.py`
and `presets.py` make configs from overrides and from `conf/experiment/`.
"""
