"""Whose an error is, and what a person is told of it: one line, and the code to end with."""

import errno
import os
import re
import sys
import traceback
from pathlib import Path

from pods.console import shown

DONE, FAILED, BAD_INPUT, AGAIN = 0, 1, 2, 75
"""Exit codes: all is well; a run failed; what was typed is wrong; run the same command again."""
MACHINE = frozenset({
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG,  # full
    errno.EIO, errno.EROFS, errno.ENXIO, errno.ENODEV,  # a disk that failed, or was pulled out
    errno.ESTALE, errno.EREMOTEIO, errno.ENOLCK, errno.ETIMEDOUT, errno.ENOTCONN, errno.ECONNRESET,
    errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH,  # a disk far away
    errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE,  # no room for a process or a file
})  # fmt: skip
MENDED = "once that is mended, the same command goes on"


def number_of(error: BaseException) -> int | None:
    """The operating system's number of an error; safetensors hides it in the text."""
    if isinstance(error, OSError):
        return error.errno
    found = re.search(r"os error (\d+)", str(error))
    return int(found[1]) if found else None


def is_machine_trouble(error: BaseException, folder: Path | None = None) -> bool:
    """Say whether the machine is to blame: nothing of ours, and the same command goes on.

    Args:
        error: that was met.
        folder: of a run that was already under way: a file in it that may no longer be written is
            the machine's trouble too, where before the start it is bad input.
    """
    if isinstance(error, MemoryError):
        return True
    number = number_of(error)
    if number in (errno.EACCES, errno.EPERM) and isinstance(error, OSError):
        place = error.filename
        return folder is not None and place is not None and folder in Path(str(place)).parents
    return number in MACHINE


def explain(error: Exception, debug: bool = False) -> int:
    """Print an error that nobody has expected as one line; return the exit code.

    Args:
        error: a `ValueError` says itself what is wrong with the input.
        debug: print first where it came from.
    """
    if debug:
        print(shown("".join(traceback.format_exception(error))), file=sys.stderr, end="")
    if isinstance(error, OSError) and error.errno is not None:
        return _blame(is_machine_trouble(error), in_words(error))
    if is_machine_trouble(error):
        return _blame(True, in_short(error))
    if isinstance(error, ValueError):
        print(f"error: {shown(str(error))}", file=sys.stderr)
        return BAD_INPUT
    print(f"error: {shown(in_short(error))} (--debug shows where)", file=sys.stderr)
    return FAILED


def _blame(machine: bool, what: str) -> int:
    """Say what is wrong; return the code of the machine's trouble, or of bad input."""
    print(f"error: {shown(what)}", *[MENDED] * machine, sep="\n", file=sys.stderr)
    return AGAIN if machine else BAD_INPUT


def in_words(error: Exception) -> str:
    """What an error says; of the operating system's, also of which file."""
    if not isinstance(error, OSError) or error.errno is None:
        return str(error)
    if error.errno == errno.EEXIST:  # a file, where a folder was to be made
        said = os.strerror(errno.ENOTDIR)
    else:
        said = error.strerror or os.strerror(error.errno)
    return said if error.filename is None else f"{error.filename}: {said}"


def in_short(error: BaseException) -> str:
    """An error's name and the first line of what it says."""
    said = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
