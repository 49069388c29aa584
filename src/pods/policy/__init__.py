"""The model in training: loading, log-probs, the update, LoRA, FSDP and the process group.

Start reading in `update.py`. Advantages and losses are pure functions in `method`, generation is in
`engines`, and the estimate of what a run needs is in `memory`.
"""
