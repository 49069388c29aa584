"""What n and m cost and gain here: a pilot (`verb.py`), the numbers (`advice.py`), the text."""
