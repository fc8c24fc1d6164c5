"""Compare the speed of two builds of the package, with alternating runs of each job on one machine.

    python benchmarks/speed/compare.py BASE HEAD [--jobs koil] [--rounds 15] [--slower 1.05]

BASE and HEAD are commits, or folders into which a build was installed (``pip install --target``). A commit
is checked out and built once, under ``build/compare``. Each process loads one build. The processes alternate,
job by job, in an order that changes from round to round, so that other load affects both builds. There are
several processes of each build, because the memory layout can make a process faster than another by 10 %.

The result of a job is the ratio of the processor times of HEAD and BASE in the same round. Its median and a
95 % confidence interval of the median are printed. The exit code is 1 if the whole interval of a job is above
``--slower``.

Jobs run in one thread, so that processor time equals the time for which a user waits.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from math import comb
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from jobs import JOBS

ROOT = Path(__file__).resolve().parents[2]
ONE_THREAD = dict.fromkeys(
    ("STEELYARD_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"
)
PROCESSES = 4  # number of processes of each build
LEAST_SECONDS = 0.1  # minimum duration of a measurement; quick jobs are repeated


# -- builds -------------------------------------------------------------------------------------------


def folder_of(build: str) -> Path:
    """Return the folder in which a build is installed. A commit is built first."""
    if (Path(build) / "steelyard").is_dir():
        return Path(build).resolve()
    found = subprocess.run(
        ["git", "rev-parse", "--verify", "--quiet", f"{build}^{{commit}}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode:
        sys.exit(f"`{build}` is neither a commit nor a folder with a build (pip install --target FOLDER)")
    commit = found.stdout.strip()[:12]
    home = ROOT / "build" / "compare" / commit
    if not (home / "built").exists():
        print(f"building {build} ({commit}), which takes some minutes", file=sys.stderr)
        if not (home / "source").exists():
            subprocess.run(["git", "worktree", "prune"], cwd=ROOT, check=True)
            tree = ["git", "worktree", "add", "--detach", home / "source", commit]
            subprocess.run(tree, cwd=ROOT, check=True)
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
        subprocess.run([*install, "--target", home / "installed", home / "source"], check=True)
        (home / "built").touch()
    return home / "installed"


# -- the process that runs a build -------------------------------------------------------------------


def work(folder: str) -> None:
    """Read names of jobs line by line, run each job and print its seconds or the error."""
    # An editable installation would be imported before any folder of the path.
    sys.meta_path = [finder for finder in sys.meta_path if "Redirecting" not in type(finder).__name__]
    sys.path.insert(0, folder)
    import steelyard

    if Path(folder) not in Path(steelyard.__file__).parents:
        sys.exit(f"steelyard was imported from `{steelyard.__file__}` and not from `{folder}`")
    made: dict[str, Any] = {}
    for line in sys.stdin:
        name = line.strip()
        try:
            if name not in made:
                made[name] = JOBS[name]()
                made[name]()  # warm-up
            print(seconds_of(made[name]), flush=True)
        except (ImportError, AttributeError, TypeError) as error:  # missing in an older build
            print(f"missing: {error}".splitlines()[0], flush=True)


def seconds_of(run: Any) -> float:
    count, start = 0, process_time()
    while (spent := process_time() - start) < LEAST_SECONDS or not count:
        run()
        count += 1
    return spent / count


class Side:
    """Processes that run one of the two builds and alternate with the other build."""

    def __init__(self, folder: Path) -> None:
        self._processes = [
            subprocess.Popen(
                [sys.executable, __file__, "--work", str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, **ONE_THREAD},
            )
            for _ in range(PROCESSES)
        ]

    def run(self, name: str) -> float | str:
        process = self._processes.pop(0)
        self._processes.append(process)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{name}\n")
        process.stdin.flush()
        answer = process.stdout.readline().strip()
        if not answer:
            sys.exit(f"the process that ran {name} has ended with code {process.wait()}")
        return answer if answer.startswith("missing") else float(answer)

    def close(self) -> None:
        for process in self._processes:
            process.communicate()


# -- evaluation of the times---------------------------------------------------------------------------


def median_interval(values: list[float], level: float = 0.95) -> tuple[float, float]:
    """Return a confidence interval of the median with coverage at least `level`.

    The interval is bounded by the k-th smallest and the k-th largest value. Each value is below the median
    with probability 1/2, so k follows from the binomial distribution. No distribution of the values is
    assumed. With fewer than six values there is no such interval, and the whole real line is returned.
    """
    ordered, n = sorted(values), len(values)
    tail, k = 0.0, 0
    while k < n // 2 and tail + comb(n, k) / 2**n <= (1.0 - level) / 2.0:
        tail += comb(n, k) / 2**n
        k += 1
    return (ordered[k - 1], ordered[n - k]) if k else (-np.inf, np.inf)


def compare(name: str, base: Side, head: Side, rounds: int, slower: float) -> bool:
    """Print the result of one job; return whether it became slower."""
    pairs: list[tuple[float, float]] = []
    for number in range(rounds):
        order = (base, head) if number % 2 == 0 else (head, base)
        times = {side: side.run(name) for side in order}
        for side, build in ((base, "BASE"), (head, "HEAD")):
            if isinstance(times[side], str):
                print(f"{name:28} {times[side]} (in {build})", flush=True)
                return False
        pairs.append((float(times[base]), float(times[head])))
    ratios = [after / before for before, after in pairs]
    low, high = median_interval(ratios)
    old, new = np.median(pairs, axis=0)
    verdict = "SLOWER" if low > slower else "faster" if high < 1.0 else ""
    times = f"{1e3 * old:10.2f} ms {1e3 * new:10.2f} ms"
    print(f"{name:28} {times}   {np.median(ratios):6.3f}   {low:6.3f} to {high:6.3f}   {verdict}", flush=True)
    return low > slower


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("base", help="a commit, or a folder with a build")
    parser.add_argument("head", help="the same")
    parser.add_argument("--jobs", nargs="+", default=[""], help="parts of names; without them all jobs run")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--slower", type=float, default=1.05, help="a job with a larger ratio counts as slower"
    )
    options = parser.parse_args()
    names = [name for name in JOBS if any(part in name for part in options.jobs)]
    if not names:
        parser.error(f"no job has this name; the jobs are {', '.join(JOBS)}")
    base, head = Side(folder_of(options.base)), Side(folder_of(options.head))
    print(f"{'job':28} {'BASE':>13} {'HEAD':>13}   {'ratio':>6}   95 % interval")
    is_slower = [compare(name, base, head, options.rounds, options.slower) for name in names]
    base.close()
    head.close()
    return int(any(is_slower))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2])
    else:
        sys.exit(main())
