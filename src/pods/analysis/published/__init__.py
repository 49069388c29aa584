"""The logs that the PODS authors released, read into the same tables as our own runs.

Start reading in `release.py`. Two forms of logs were released: JSON files of runs on one GPU
(`one_gpu.py`, one file: `json_log.py`) and W&B exports of runs on eight (`eight_gpus.py`).
`imports.py` stores either as a study. Nothing is downloaded here: that is `pods fetch published`.
"""
