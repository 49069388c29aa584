"""The methods as published, as pure functions of arrays.

Down-sampling rules (`rules.py`), advantages and losses (`grpo.py`), the group filter, and the
selection (`prompt_selection.py`, `arcus.py`, `cero.py`) and order of prompts. Nothing here reads a
file or a model. Start reading in `rules.py`, which needs numpy alone.
"""
