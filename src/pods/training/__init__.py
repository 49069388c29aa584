"""One run: the training loop, its evaluation, and what puts them together.

`loop.py` is a generator of steps and writes nothing; `trainer.py` consumes it and writes the run
folder; `build.py` connects the parts. Start reading in `loop.py`. Many runs live in `launch`.
"""
