"""Stress test with many random histories of sites and messages.

`make torture-sites`, or `python -m tests.federated.torture --help`.
"""

# ruff: noqa: T201 - a command that prints its results

from __future__ import annotations

import argparse
import time
from collections import Counter

from tests.federated.histories import check


def main() -> None:
    """Play histories one after the other; stop at the first failure and print its seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=10_000)
    parser.add_argument(
        "--seed", type=int, default=0, help="Seed of the first history; every further one adds 1."
    )
    arguments = parser.parse_args()
    started, compared, counts = time.process_time(), 0, Counter()
    for seed in range(arguments.seed, arguments.seed + arguments.histories):
        history = check(seed)
        compared += bool(history.accepted)
        counts.update(history.counts)
    seconds = time.process_time() - started
    last = arguments.seed + arguments.histories - 1
    print(f"{arguments.histories:,} histories, seeds {arguments.seed} to {last}, {seconds:.0f} s of CPU time")
    print(f"all digests equal those of a single fit; {compared:,} histories ended with rows")
    for event, n in sorted(counts.items()):
        print(f"{n:>9,}  {event}")


if __name__ == "__main__":
    main()
