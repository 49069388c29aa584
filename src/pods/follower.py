"""A process of a run that leads nothing: it loads what it has to and does what it is asked."""

import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from pods import torchrun
from pods.config import Config
from pods.machine import end_with_parent, set_threads
from pods.runs.store import RunStore
from pods.stop import SIGNALS, Gone

if TYPE_CHECKING:
    from pods.policy.orders import Orders
    from pods.worker import Worker

LAST_WORD_SECONDS = 20.0  # what is wrong at the start is mostly wrong for the leader, which says it


def follow(store: RunStore, attempt: Path | None) -> int:
    """Follow until the process that leads has no more to do, or is gone; return the exit code.

    What goes wrong at work is the run's failure: the attempt's folder says so for `torchrun.run`.
    """
    end_with_parent(signal.SIGKILL)
    for number in SIGNALS:  # they are the leader's to hear
        signal.signal(number, signal.SIG_IGN)
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115  (for the life of the process)
    try:
        worker, orders = _ready(torchrun.at_hand(store.config()))
    except Gone:
        return 0
    except Exception as error:
        time.sleep(LAST_WORD_SECONDS)
        if isinstance(error, ValueError):
            print(f"error: {error}", file=sys.stderr)
        else:
            traceback.print_exception(error)
        return 1
    from pods import crew
    from pods.policy.team import of_a_connection

    try:
        crew.follow(worker, orders)
    except Gone:
        return 0
    except Exception as error:
        if of_a_connection(error):
            return 0
        traceback.print_exception(error)
        if attempt is not None:
            torchrun.note_failure(attempt, error)
        return 1
    return 0


def _ready(config: Config) -> "tuple[Worker, Orders]":
    set_threads(config.hardware.threads)
    from pods.assemble import build_worker, load_data
    from pods.policy.orders import Orders
    from pods.policy.team import join
    from pods.rehearsal import rehearse

    team = join(config.hardware.device)
    orders = Orders(team)
    data = load_data(config, orders.look)
    worker = build_worker(config, data, orders.look, team)
    rehearse(worker, [*data.prompts, *data.asked])
    return worker, orders
