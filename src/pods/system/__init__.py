"""The operating system: signals, watchdog, console, machine and its load, errors, exit codes.

Nothing here knows what a run is; a run's own files and status live in `runs`. Start reading in
`errors.py`, which defines the exit codes, and `signals.py`, by which every run can be stopped.
"""
