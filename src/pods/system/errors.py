"""Exit codes, and which errors are the machine's, the user's or the run's own."""

import errno
import os
import re
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

from pods.system.console import printable

DONE = 0
FAILED = 1  # a run failed
BAD_INPUT = 2
AGAIN = 75  # a temporary failure: the same command resumes (EX_TEMPFAIL of sysexits.h)
INTERRUPTED = 130  # Ctrl-C while no run was going on (128 + SIGINT, as shells have it)
RESUME = "run the same command again to resume from the newest checkpoint"
FIX_AND_RESUME = "fix this, then run the same command again to resume"
NO_MEMORY = "can't allocate memory"  # says torch on a CPU; on a GPU it is a class
DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
DISK_GONE = {errno.EIO, errno.EROFS, errno.ENXIO, errno.ENODEV}
NETWORK_DISK_GONE = {
    errno.ESTALE,
    errno.EREMOTEIO,
    errno.ENOLCK,
    errno.ETIMEDOUT,
    errno.ENOTCONN,
    errno.ECONNRESET,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.ENETDOWN,
    errno.ENETUNREACH,
}
NO_RESOURCES = {errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE}  # memory, processes, files
MACHINE_ERRNOS = DISK_FULL | DISK_GONE | NETWORK_DISK_GONE | NO_RESOURCES


def errno_of(error: BaseException) -> int | None:
    """Return the errno of an error; safetensors has it only in its text, torch what it means."""
    if isinstance(error, OSError):
        return error.errno
    if os.strerror(errno.ENOSPC) in str(error):
        return errno.ENOSPC
    match = re.search(r"os error (\d+)", str(error))
    return int(match[1]) if match else None


def gpu_failure(error: BaseException) -> str | None:
    """Say what a GPU failed with and what to do, as one line; None if it was something else.

    Looks through the errors that caused this one, so that an engine's failure counts too. A failed
    assertion of a kernel is no failure of the GPU: it would come again.
    """
    for cause in _causes(error):
        line = _first_line(cause)
        if type(cause).__name__.endswith("OutOfMemoryError"):
            return (
                f"the GPU ran out of memory ({line.partition('. GPU ')[0]}): nvidia-smi shows what "
                "else uses it; a new run needs less with lower update.micro_batch_tokens, "
                "engine.max_rows or engine.kv_gb"
            )
        if isinstance(cause, RuntimeError) and line.startswith(("CUDA error", "NCCL error")):
            if "assert" in line:
                return None
            return f"the GPU failed ({line}): see nvidia-smi and the kernel's log (dmesg, Xid)"
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, what caused it, what caused that, ..."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def is_machine_error(error: BaseException, folder: Path | None = None) -> bool:
    """Tell whether the machine caused an error, so that the same command can resume.

    A file that cannot be written is bad input, unless it is in the `folder` of a run that had
    already started.
    """
    if isinstance(error, MemoryError) or NO_MEMORY in str(error):
        return True
    if gpu_failure(error) is not None:
        return True
    if isinstance(error, PermissionError):
        return folder is not None and folder in Path(str(error.filename)).parents
    return errno_of(error) in MACHINE_ERRNOS


def explain(error: Exception, debug: bool = False) -> int:
    """Print an error that nothing has handled as one line, and return the exit code.

    The message of a `ValueError` already says what is wrong with the input.
    """
    if debug:
        print_traceback(error)
    if isinstance(error, ModuleNotFoundError) and error.name in ("torch", "peft", "transformers"):
        print_error(f"{error.name} is not installed: pip install 'pods-rl[train]'")
        return BAD_INPUT

    from_system = isinstance(error, OSError) and error.errno is not None
    if is_machine_error(error):
        text = as_text(error) if from_system else gpu_failure(error) or as_short_text(error)
        print_error(text, FIX_AND_RESUME)
        return AGAIN
    if from_system or isinstance(error, ValueError):
        print_error(as_text(error))
        return BAD_INPUT
    print_error(f"{as_short_text(error)} (--debug shows the traceback)")
    return FAILED


def print_error(text: str, advice: str = "") -> None:
    """Print an error on stderr, with a second line of advice if there is any."""
    print(f"error: {printable(text)}", file=sys.stderr)
    if advice:
        print(advice, file=sys.stderr)


def print_traceback(error: BaseException) -> None:
    """Print where an error came from, on stderr."""
    print(printable("".join(traceback.format_exception(error))), file=sys.stderr, end="")


def as_text(error: Exception) -> str:
    """Return an error's message; one of the operating system names the file first.

    Before that stands what was noted with the error, such as the key that chose the file.
    """
    if not isinstance(error, OSError) or error.errno is None:
        return str(error)
    text = str(error.strerror)
    if error.errno == errno.EEXIST:  # a file, where a folder was to be created
        text = os.strerror(errno.ENOTDIR)
    if error.filename is not None:
        text = f"{error.filename}: {text}"
    for note in getattr(error, "__notes__", []):
        text = f"{note} ({text})"
    return text


def as_short_text(error: BaseException) -> str:
    """Return an error's type and the first line of its message."""
    line = _first_line(error)
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
