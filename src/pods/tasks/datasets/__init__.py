"""The data sets: where each is, which fields hold question and answer, and how rows are checked.

One module per data set; `splits.py` reads their rows. Prompts and grading are elsewhere in `tasks`.
Start reading in `gsm8k.py`.
"""
