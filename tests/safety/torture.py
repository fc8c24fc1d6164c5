"""Long runs of the safety tests: `python -m tests.safety.torture --help`, or `make torture`.

Ranges of trials run in separate processes, so that a crash is counted and the other trials continue. A result
can be reproduced with the seed and the trial numbers that are printed.
"""

# ruff: noqa: T201 - a command-line program

from __future__ import annotations

import argparse
import os
import pickle
import random
import re
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.safety import fuzz, savers
from tests.safety.interruption import interrupt_at, interrupt_by_signal, try_call
from tests.safety.subjects import SUBJECTS
from tests.safety.threads import predict_while_learning

TRIALS_PER_PROCESS = 2000
MAX_ADDRESS_SPACE_BYTES = 6 << 30  # limit of one process; the libraries alone need 2 GiB


def interruptions(seed: int, share: float, learners: str) -> fuzz.Report:
    """Interrupt every call of every learner at all moments, or at a fraction ``share`` of them."""
    report, random_ = fuzz.Report("moments"), random.Random(seed)
    for subject in SUBJECTS:
        if not re.search(learners, subject.name):
            continue
        for name, call in subject.calls():
            skip = 0

            def interrupt(_: int, run: Callable[[], object]) -> bool:
                nonlocal skip
                skip += 1 if share >= 1.0 else 1 + int(random_.expovariate(share))
                return interrupt_at(skip - 1, run)

            _count(report, f"{subject.name} {name}", subject, call, interrupt, 1_000_000)
        print(f"    {subject.name}: {report.tried:,} moments so far, {len(report.faults)} faults", flush=True)
    return report


def signals(seed: int, n: int) -> fuzz.Report:
    """Interrupt every call of every learner by signals of a timer."""
    report, random_ = fuzz.Report("signals"), random.Random(seed)
    for subject in SUBJECTS:
        for name, call in subject.calls():
            model = subject.fitted_copy()
            begin = time.perf_counter()
            call(model)
            longest = 1.2 * (time.perf_counter() - begin)
            _count(
                report,
                f"{subject.name} {name}",
                subject,
                call,
                lambda _, run, longest=longest: interrupt_by_signal(longest, run, random_) or True,
                n,
            )
    return report


def _count(report, name, subject, call, interrupt, n):  # noqa: PLR0917 - private
    try:
        count = try_call(subject.fitted_copy(), subject.questions, call, interrupt, n)
    except AssertionError as fault:
        report.faults.append(f"{name}: {fault}")
    else:
        report.tried += count.before + count.after
        report.refused += count.before
        report.taken += count.after


def threads(seconds: float) -> fuzz.Report:
    """Predict in three threads while one thread learns, for every learner."""
    report = fuzz.Report("threads")
    for subject in SUBJECTS:
        if subject.name == "ProximalSVC auto":  # selects C at prediction, so its states cannot be enumerated
            continue
        try:
            report.tried += predict_while_learning(subject, seconds).predictions
        except AssertionError as fault:
            report.faults.append(f"{subject.name}: {fault}")
    return report


def saves(seed: int, n: int) -> fuzz.Report:
    """Kill processes while they save, and let processes save to one path concurrently."""
    report = fuzz.Report("saves")
    with tempfile.TemporaryDirectory() as folder:
        try:
            outcome = savers.kill_savers(Path(folder), n, seed)
            report.tried, report.taken, report.refused = n, outcome.new, outcome.old
            report.tried += savers.save_at_once(Path(folder), n_savers=4, seconds=0.05 * n)
        except AssertionError as fault:
            report.faults.append(str(fault))
    return report


def fuzzed(area: str, n: int, seed: int) -> fuzz.Report:
    """Run the fuzzer of one area in separate processes."""
    report = fuzz.Report(area)
    for first in range(0, n, TRIALS_PER_PROCESS):
        size = min(TRIALS_PER_PROCESS, n - first)
        report.tried += size
        result = _in_child(lambda: fuzz.run(area, size, seed, first))  # noqa: B023 - called at once
        if isinstance(result, int):
            report.faults.append(f"{area} {first}..{first + size}: the process ended with {result}")
            continue
        report.refused += result.refused
        report.taken += result.taken
        report.faults += result.faults
    return report


def _in_child(task: Callable[[], fuzz.Report]) -> fuzz.Report | int:
    """Return the result of a task in a forked process, or the exit status if it has no result."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        # A limit turns excessive allocation into a fault.
        resource.setrlimit(resource.RLIMIT_AS, (MAX_ADDRESS_SPACE_BYTES, MAX_ADDRESS_SPACE_BYTES))
        try:
            with os.fdopen(writing, "wb") as pipe:
                pickle.dump(task(), pipe)
        except BaseException:  # noqa: BLE001 - the child must not continue the work of the parent
            os._exit(70)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status or pickle.loads(told)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=20_000, help="fuzzed inputs of each area")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--areas", default="files,tables,calls,commands,bodies,moments,signals,threads,saves")
    parser.add_argument("--learners", default="", help="regular expression of the learners to interrupt")
    parser.add_argument(
        "--piece", nargs=4, metavar=("AREA", "FIRST", "SIZE", "SEED"), help="one range of trials"
    )
    options = parser.parse_args()
    if options.piece:
        area, first, size, seed = options.piece[0], *map(int, options.piece[1:])
        report = fuzz.run(area, size, seed, first)
        print(report, *report.faults, sep="\n")
        return 0
    share = min(1.0, options.size / 20_000)
    makers: dict[str, Callable[[], fuzz.Report]] = {
        "moments": lambda: interruptions(options.seed, share, options.learners),
        "signals": lambda: signals(options.seed, max(5, int(200 * share))),
        "threads": lambda: threads(max(0.2, 5.0 * share)),
        "saves": lambda: saves(options.seed, max(20, int(412 * share))),
    }
    n_faults = 0
    for area in options.areas.split(","):
        report = makers[area]() if area in makers else fuzzed(area, options.size, options.seed)
        print(report, f" (seed {options.seed})", flush=True)
        for fault in report.faults[:20]:
            print(f"    {fault}")
        n_faults += len(report.faults)
    return 1 if n_faults else 0


if __name__ == "__main__":
    sys.exit(main())
