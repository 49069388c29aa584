"""Which n and m pay on this machine: a pilot (`verb.py`), the numbers (`advice.py`), the text."""
