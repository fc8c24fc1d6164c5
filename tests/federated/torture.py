"""Many histories of sites and messages: `make torture-sites`, or `python -m tests.federated.torture --help`."""

# ruff: noqa: T201 - it talks to whoever runs it

from __future__ import annotations

import argparse
import time
from collections import Counter

from tests.federated.histories import check


def main() -> None:
    """Play histories one after the other; the first that does not hold stops with its seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="Of the first history; each has the next.")
    arguments = parser.parse_args()
    started, compared, counts = time.process_time(), 0, Counter()
    for seed in range(arguments.seed, arguments.seed + arguments.histories):
        history = check(seed)
        compared += bool(history.behind)
        counts.update(history.counts)
    spent = time.process_time() - started
    last = arguments.seed + arguments.histories - 1
    print(
        f"{arguments.histories:,} histories, seeds {arguments.seed} to {last}, {spent:.0f} s of a processor"
    )
    print(f"in all of them the digest was that of one learner; {compared:,} left rows to compare")
    for what, n in sorted(counts.items()):
        print(f"{n:>9,}  {what}")


if __name__ == "__main__":
    main()
