"""`pods audit`: the statistics of this harness for runs that other trainers left.

Reading: `walk.py` lists files, `readers.py` opens them, `formats.py` has the record of a run's log,
and a file for each format reads it. Judging begins with `verb.py`: `mapping.py` says which columns
mean what, `lines.py` and `records.py` make numbers of rows, one per step, `clocks.py` training
seconds of times, `left_out.py` finds the runs that do not count, and `foreign.py` makes our `Study`
of the rest. What follows is `pods.analysis`, with `extras.py` and `findings.py`.
"""
