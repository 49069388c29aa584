"""`pods audit`: the statistics of this harness for runs that other trainers left.

`formats.py` reads a file, `readers.py` walks folders, `mapping.py` says which columns mean what,
`foreign.py` makes our `Study` of it, and what follows is `pods.analysis`, with `extras.py`.
"""
