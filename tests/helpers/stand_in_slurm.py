"""Stand-ins for the Slurm commands that submitit uses; jobs run as processes of this machine.

The folder SLURM_STAND_IN holds the script of each array, the queued jobs and the requeues.
"""

import os
import re
import stat
import subprocess
import sys
import time
from pathlib import Path

COMMANDS = ("sbatch", "srun", "scontrol", "sacct")


def install(folder: Path, bin_folder: Path) -> None:
    """Put the commands into a folder of PATH."""
    folder.mkdir()
    bin_folder.mkdir()
    for name in COMMANDS:
        path = bin_folder / name
        path.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} {name} "$@"\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)


def steps(folder: Path) -> dict[str, int]:
    """Return the process ids of the running steps, by job."""
    return {path.suffix[1:]: int(path.read_text()) for path in folder.glob("step.*")}


def sbatch(folder: Path, script: str) -> None:
    (folder / f"sbatch.{os.getpid()}").touch()
    time.sleep(float(os.environ.get("SBATCH_SECONDS", "0")))
    number = str(100 + len(list(folder.glob("script.*"))))
    (folder / f"script.{number}").write_text(Path(script).read_text())
    for job in tasks(folder, number)[0]:
        (folder / f"queued.{job}").touch()
    subprocess.Popen([sys.executable, __file__, "controller", number], stdin=subprocess.DEVNULL,
                     stdout=subprocess.DEVNULL, stderr=(folder / "errors").open("a"),
                     start_new_session=True)  # fmt: skip
    print(f"Submitted batch job {number}")


def tasks(folder: Path, number: str) -> tuple[list[str], int]:
    """Return the jobs of a script, and how many of them may run at once."""
    text = (folder / f"script.{number}").read_text()
    array = re.search(r"^#SBATCH --array=0-(\d+)%(\d+)$", text, re.M)
    if array is None:
        return [number], 1
    return [f"{number}_{i}" for i in range(int(array[1]) + 1)], int(array[2])


def controller(folder: Path, number: str) -> None:
    """Run a script's jobs, a limited number at a time, and again if one is requeued."""
    waiting, at_once = tasks(folder, number)
    running: dict[str, subprocess.Popen] = {}
    while waiting or running:
        while waiting and len(running) < at_once:
            job = waiting.pop(0)
            array, _, index = job.partition("_")
            ours = {"SLURM_JOB_ID": str(1000 + int(index or 0)), "SLURM_NTASKS": "1"}
            if index:
                ours |= {"SLURM_ARRAY_JOB_ID": array, "SLURM_ARRAY_TASK_ID": index}
            else:
                ours["SLURM_JOB_ID"] = array
            environment = {**os.environ, **ours, "STAND_IN_JOB": job}
            script = str(folder / f"script.{number}")
            running[job] = subprocess.Popen(["bash", script], env=environment)
        time.sleep(0.05)
        for job in [job for job, process in running.items() if process.poll() is not None]:
            del running[job]
            (folder / f"step.{job}").unlink(missing_ok=True)
            requeue = folder / f"requeue.{job}"
            if requeue.exists():
                requeue.unlink()
                waiting.insert(0, job)
            else:
                (folder / f"queued.{job}").unlink()


def srun(folder: Path, *words: str) -> None:
    """Replace this process by the step, and redirect its output."""
    job, rest = os.environ["STAND_IN_JOB"], list(words)
    output = rest[rest.index("--output") + 1]
    array, _, index = job.partition("_")
    output = output.replace("%j", job).replace("%A", array).replace("%a", index).replace("%t", "0")
    command = rest[next(i for i, word in enumerate(rest) if "python" in word) :]
    with (folder / "steps").open("a") as log:
        log.write(f"{job} {time.monotonic():.3f} {' '.join(rest)}\n")
    (folder / f"step.{job}").write_text(str(os.getpid()))
    Path(output).parent.mkdir(parents=True, exist_ok=True)
    to = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(to, 1)
    os.dup2(to, 2)
    os.execvp(command[0], command)


def scontrol(folder: Path, verb: str, job: str) -> None:
    assert verb == "requeue"
    with (folder / "requeues").open("a") as log:
        log.write(f"{job}\n")
    (folder / f"requeue.{job}").touch()


def sacct(folder: Path, *words: str) -> None:
    """Print the state of each job of the scripts named by `-j`."""
    assert words[:3] == ("-o", "JobID,State,NodeList", "--parsable2")
    print("JobID|State|NodeList")
    running = steps(folder)
    for number in words[4::2]:
        for job in tasks(folder, number)[0]:
            state = "RUNNING" if job in running else "PENDING"
            print(f"{job}|{state if (folder / f'queued.{job}').exists() else 'COMPLETED'}|here")


if __name__ == "__main__":
    verb, *words = sys.argv[1:]
    globals()[verb](Path(os.environ["SLURM_STAND_IN"]), *words)
