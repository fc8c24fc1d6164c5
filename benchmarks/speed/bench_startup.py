"""Start-up: imports, ``steelyard --help``, and the first prediction of a loaded model.

Run as ``python benchmarks/speed/bench_startup.py [--rounds 5]``. Every number is the smallest processor time
of several new processes. The processes alternate, so other load has little effect.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

HELP = "import sys; sys.argv = ['steelyard', '--help']; from steelyard.cli import main; main()"
IMPORTS = {
    "python": "pass",
    "numpy, sklearn": "import numpy, sklearn, sklearn.base, sklearn.utils.validation",
    "numpy, sklearn, steelyard": ("import numpy, sklearn, sklearn.base, sklearn.utils.validation, steelyard"),
    "ProximalSVC": "from steelyard import ProximalSVC",
    "StreamClassifier": "from steelyard import StreamClassifier",
    "steelyard": "import steelyard",
    "steelyard --help": HELP,
}
MODELS = {
    "ProximalSVC": "ProximalSVC()",
    "ProximalSVC, random features": "ProximalSVC(feature_map=RandomFeatures(300))",
    "IncrementalSVC": "IncrementalSVC()",
    "KOIL": "KOIL(random_state=0)",
    "StreamClassifier": "StreamClassifier()",
}
LEARN = """
import sys, numpy as np
from steelyard import *
rng = np.random.default_rng(0)
X = rng.normal(size=(3000, 30)); y = (X[:, 0] + rng.normal(size=3000) > 1.5).astype(int)
model = {model}
for begin in range(0, 3000, 500):
    model.partial_fit(X[begin:begin + 500], y[begin:begin + 500])
save(model, sys.argv[1])
"""
PREDICT = """
import sys, time, numpy as np
from steelyard import load
X = np.random.default_rng(1).normal(size=(100, 30))
model = load(sys.argv[1])
begin = time.process_time()
model.predict(X)
first = time.process_time() - begin
begin = time.process_time()
model.predict(X)
print(first, time.process_time() - begin)
"""
LIMITS_MS = {"import": 60.0, "help": 150.0, "predict": 50.0}


def processor_ms(code: str) -> float:
    """Return the processor time of a new process that runs this code, in milliseconds."""
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    after = getrusage(RUSAGE_CHILDREN)
    return 1e3 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def verdict(name: str, value: float, limit: float) -> bool:
    met = value <= limit
    print(f"  {name:52}{value:8.1f} ms (at most {limit:g}) {'met' if met else 'MISSED'}")
    return met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    best = dict.fromkeys(IMPORTS, float("inf"))
    for _ in range(rounds):
        for name, code in IMPORTS.items():
            best[name] = min(best[name], processor_ms(code))
    print("processor time of a new process:")
    for name, value in best.items():
        print(f"  {name:52}{value:8.1f} ms")
    peers = best["numpy, sklearn"]
    print("beyond NumPy and scikit-learn:")
    met = verdict("import steelyard", best["numpy, sklearn, steelyard"] - peers, LIMITS_MS["import"])
    for name in ("ProximalSVC", "StreamClassifier"):
        print(f"  {f'from steelyard import {name}':52}{best[name] - peers:8.1f} ms")
    met &= verdict("steelyard --help, whole process", best["steelyard --help"], LIMITS_MS["help"])
    print("first prediction of 100 x 30 after load, and the second:")
    with tempfile.TemporaryDirectory() as folder:
        for name, model in MODELS.items():
            path = str(Path(folder) / "model.steelyard")
            subprocess.run([sys.executable, "-c", LEARN.format(model=model), path], check=True)
            command = [sys.executable, "-c", PREDICT, path]
            runs = [
                subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(rounds)
            ]
            times = [[1e3 * float(x) for x in run.stdout.split()] for run in runs]
            first, second = (min(column) for column in zip(*times, strict=True))
            met &= verdict(f"{name} (second {second:.1f} ms)", first, LIMITS_MS["predict"])
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
