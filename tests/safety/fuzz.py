"""Fuzzing of files, tables, calls and commands: every input is rejected with an error message or accepted.

A trial depends only on its area, its number and the seed, so every fault can be reproduced.
"""

from __future__ import annotations

import contextlib
import signal
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.safety import fuzz_bodies, fuzz_calls, fuzz_commands, fuzz_files, fuzz_tables

__all__ = ["AREAS", "Report", "run"]

# Limits of one trial in CPU seconds and in wall-clock seconds. The second limit is larger, because the
# machine may be busy.
LONGEST, LONGEST_WAIT = 10, 300

Trial = Callable[
    [np.random.Generator], bool
]  # a trial returns whether the input was accepted, and raises AssertionError for a fault

AREAS: dict[str, Trial] = {
    "files": fuzz_files.trial,
    "tables": fuzz_tables.trial,
    "calls": fuzz_calls.trial,
    "commands": fuzz_commands.trial,
    "bodies": fuzz_bodies.trial,
}


@dataclass
class Report:
    """Counts and faults of the trials of one area."""

    area: str
    tried: int = 0
    refused: int = 0
    taken: int = 0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.area:<9} {self.tried:>9,} tried  {self.refused:>9,} refused  {self.taken:>9,} accepted  "
            f"{len(self.faults):>4} faults"
        )


class TooLong(BaseException):
    """A trial exceeded its time limit."""


@contextlib.contextmanager
def limited() -> Iterator[None]:
    def stop(_number: int, _frame: Any) -> None:
        raise TooLong

    before = [signal.signal(number, stop) for number in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, LONGEST)
    signal.setitimer(signal.ITIMER_REAL, LONGEST_WAIT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in zip((signal.SIGPROF, signal.SIGALRM), before, strict=True):
            signal.signal(number, handler)


def run(area: str, n: int, seed: int = 0, first: int = 0) -> Report:
    """Run ``n`` trials of an area, beginning with the trial number ``first``."""
    report = Report(area)
    trial = AREAS[area]
    for number in range(first, first + n):
        rng = np.random.default_rng([seed, number, sum(map(ord, area))])
        report.tried += 1
        try:
            with limited(), warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                taken = trial(rng)
        except TooLong:
            report.faults.append(f"{area} {number}: no result after {LONGEST} CPU seconds")
        except AssertionError as fault:
            report.faults.append(f"{area} {number}: {str(fault)[:300]}")
        except Exception as fault:  # noqa: BLE001 - any other exception is a fault
            report.faults.append(f"{area} {number}: {type(fault).__name__}: {str(fault)[:200]}")
        else:
            report.taken += taken
            report.refused += not taken
    return report
