"""Many runs: sweeps, their jobs, and the machines that execute the jobs.

A job is one run in a process of its own. Hydra calls the launcher of `hydra_plugins` for `-m`.
`sweep.py` freezes all configs and hands the jobs to a backend (`local_backend.py`,
`slurm_backend.py`, `ray_backend.py`), which starts `job.py` for each one and watches it through
`subprocesses.py`. A run on several processes is started by `several.py`, or by Ray. What happens
inside a run is in `pods.training`; the files that it leaves are described in `pods.runs`. Start
reading in `sweep.py`, then `job.py`.
"""
