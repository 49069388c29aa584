"""`pods audit`: the statistics of this harness for runs that other trainers left.

Reading: `walk.py` lists files, `kinds.py` says which reader each kind has, and `readers.py` opens
them; `formats.py` has the record of a run's log, `several_runs.py` splits a file of several runs,
`parts.py` puts the files of one run together, and `names.py` names runs.

Judging begins with `verb.py`: `propose.py` and `mapping.py` say which columns mean what, `lines.py`
and `records.py` make numbers of rows, one per step, `clocks.py` training seconds of times,
`left_out.py` finds the runs that do not count, and `foreign.py` makes our `Study` of the rest.
`axes.py` takes it over seconds, steps and tokens. What follows is `pods.analysis`, with `extras.py`
and `findings.py`.
"""
