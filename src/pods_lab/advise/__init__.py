"""What n and m cost and gain on this machine: a pilot (`verb.py`), the numbers (`advice.py`), the text."""
