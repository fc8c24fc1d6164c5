"""Four hospitals as four processes, one hub, one message each: `make sites`.

Every hospital keeps its rows in a file of its own and publishes statistics into a shared folder; the hub
sums them. At the end the pooled model is compared with one that has all rows in one place. The rows are made
up; benchmarks/accuracy/fed_heart.py does the same with four real hospitals.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from steelyard import ProximalSVC, load

HOSPITALS = {"north": 900, "east": 450, "south": 300, "west": 200}


def rows(name, n):
    """Patients of a hospital: pressure differs from place to place, and so does the share of the ill."""
    rng = np.random.default_rng(len(name) + n)
    ill = (rng.random(n) < 0.15 + n / 5000).astype(int)
    return pd.DataFrame(
        {
            "age": rng.integers(30, 90, size=n),
            "pressure": rng.normal(120 + 15 * ill + n / 40, 12).round(),
            "smokes": rng.choice(["yes", "no"], size=n),
            "ill": ill,
        }
    )


def steelyard(*arguments):
    """The command, as each of the places would run it."""
    return subprocess.Popen([sys.executable, "-m", "steelyard", *map(str, arguments)])


def main():
    """Publish, pool, compare."""
    with tempfile.TemporaryDirectory() as folder:
        shared, everything = Path(folder, "shared"), []
        running = []
        for name, n in HOSPITALS.items():
            table = rows(name, n)
            table.to_csv(Path(folder, f"{name}.csv"), index=False)
            everything.append(table)
            running.append(
                steelyard(
                    "site",
                    "publish",
                    Path(folder, f"{name}.csv"),
                    "--target",
                    "ill",
                    "--name",
                    name,
                    "--to",
                    shared,
                )
            )
        assert not any(process.wait() for process in running)
        steelyard("hub", "collect", shared, "-o", Path(folder, "pooled.steelyard")).wait()
        steelyard("hub", "compare", shared).wait()
        pooled = load(Path(folder, "pooled.steelyard"))
        together = pd.concat(everything)
        X = np.column_stack(
            [together["age"], together["pressure"], together["smokes"] == "no", together["smokes"] == "yes"]
        ).astype(float)
        fresh = ProximalSVC().fit(X, together["ill"].to_numpy())
        same = np.abs(pooled.learner.coef_ - fresh.coef_).max()
        print(f"\nlargest difference from a fit on all rows in one place: {same:.2g}")


if __name__ == "__main__":
    main()
