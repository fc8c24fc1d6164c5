"""Search for the protocol (coding, scale, distance, splits) that gives the published AUC on abalone."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from papers.arrays import Floats
from papers.context import Context
from papers.experiment import experiment
from papers.kba.methods import PAPER_NAME, Parts, aligned, printed
from papers.kba.uci import SETS, printed_numbers
from papers.result import Result, Row, paragraphs
from steelyard.datasets import Dataset
from steelyard.kernels import Kernel

__all__ = ["abalone"]

GAMMA = 0.086  # found by the paper's search for SVM, ACT and KBA on this dataset
SPLITS_OF_THE_PAPER = 7
SEXES = 3  # number of indicator columns of the feature sex, which are the first columns

# Coding of the feature sex, whether features are standardised, and the distance in the kernel's exponent.
PROTOCOLS = {
    "standardised": ("columns", True, "cityblock"),
    "unscaled": ("columns", False, "cityblock"),
    "unscaled, sex as a code": ("code", False, "cityblock"),
    "unscaled, without sex": ("none", False, "cityblock"),
    "standardised, Euclidean": ("columns", True, "euclidean"),
    "unscaled, without sex, Euclidean": ("none", False, "euclidean"),
}
# Name -> the paper's name of the method, class weights, C.
MACHINES: dict[str, tuple[str | None, str | None, float]] = {
    "SVM, C = 1,000": ("SVM", None, 1000.0),
    "KBA, C = 1,000": ("KBA", None, 1000.0),
    "KBA as published, C = 1,000": ("KBA", None, 1000.0),
    "BP, C = 1": (None, "balanced", 1.0),
    "KBA of BP, C = 1": ("KBA", "balanced", 1.0),
}


@dataclass(frozen=True, eq=False)
class _Work:
    """One method under one protocol, on all splits."""

    X: Floats
    y: NDArray[np.int64]
    machine: str
    standardised: bool
    distance: str
    n_splits: int
    seed: int

    def key(self) -> dict[str, Any]:
        return {
            "experiment": "kba-abalone",
            "machine": self.machine,
            "standardised": self.standardised,
            "distance": self.distance,
            "gamma": GAMMA,
            "n_splits": self.n_splits,
            "seed": self.seed,
            "data": zlib.crc32(np.ascontiguousarray(self.X).tobytes()),
        }

    def areas(self) -> list[float]:
        """Return the AUC of every split in per cent."""
        splits = StratifiedShuffleSplit(self.n_splits, test_size=1 / 7, random_state=self.seed)
        found = []
        for learned, asked in splits.split(self.X, self.y):
            X = StandardScaler().fit(self.X[learned]).transform(self.X) if self.standardised else self.X
            scores = self._scores(X[learned], self.y[learned], X[asked])
            found.append(100.0 * float(roc_auc_score(self.y[asked], scores)))
        return found

    def _scores(self, X: Floats, y: NDArray[np.int64], asked: Floats) -> Floats:
        paper, weights, C = MACHINES[self.machine]
        if paper == "KBA":
            machine_of = printed if self.machine.startswith("KBA as published") else aligned
            return machine_of(class_weight=weights)(Parts(X, y, asked, Kernel("laplacian", gamma=GAMMA)), C)
        machine = SVC(C=C, kernel="precomputed", class_weight=weights)
        machine.fit(np.exp(-GAMMA * cdist(X, X, self.distance)), y)
        scores: Floats = machine.decision_function(np.exp(-GAMMA * cdist(asked, X, self.distance)))
        return scores


def _coded(data: Dataset, coding: str) -> Floats:
    if coding == "code":
        return data.numbers()
    return data.numbers(nominal="onehot")[:, SEXES if coding == "none" else 0 :]


@experiment("kba-table-3-abalone", paper=PAPER_NAME, title="Table 3: which protocol gives the AUC on abalone")
def abalone(context: Context) -> Result:
    data = context.load("abalone")
    rows = slice(context.pick(None, None, 2000))
    y = data.binary(SETS["abalone"][1])[rows]
    work = {
        (name, machine): _Work(
            _coded(data, coding)[rows], y, machine, standardised, distance,
            n_splits=context.pick(21, 3, 2), seed=context.integer("abalone"),
        )
        for name, (coding, standardised, distance) in list(PROTOCOLS.items())[: context.pick(6, 2, 1)]
        for machine in MACHINES
        if distance == "cityblock" or MACHINES[machine][0] != "KBA"  # KBA has no other distance
    }  # fmt: skip
    answers = dict(zip(work, context.map(_Work.areas, work.values(), "abalone", key=_Work.key), strict=True))
    found = [_row(name, machine, values) for (name, machine), values in answers.items()]
    return Result(found, [*_NOTES, _drawn(context, answers)], layout="wide")


def _row(name: str, machine: str, values: list[float]) -> Row:
    paper = MACHINES[machine][0]
    theirs = printed_numbers("abalone", paper, "AUC") if paper else {}
    return Row.of(name, "AUC", machine, values, tolerance=0.5, digits=1, **theirs)


def _drawn(context: Context, answers: dict[tuple[str, str], list[float]]) -> str:
    """Return a note: the 95 % range of the mean AUC over as few splits as in the paper.

    The ranges are those of KBA under each protocol, computed by bootstrap.
    """
    rng, sentences = context.rng("drawn"), []
    for (name, machine), values in answers.items():
        if MACHINES[machine][0] != "KBA":
            continue
        means = [float(rng.choice(values, SPLITS_OF_THE_PAPER).mean()) for _ in range(2000)]
        low, high = np.quantile(means, [0.025, 0.975])
        sentences.append(f"{machine}, {name}: {low:.1f} to {high:.1f}")
    return f"Ranges that contain 95 % of the means of seven random splits: {'; '.join(sentences)}."


_NOTES = paragraphs(
    """
    BP (biased penalties) is an SVM with class_weight="balanced"; "KBA of BP" is KBA that starts from it,
    while KBA starts from an SVM with equal penalties. "KBA as published" is exactly one round of the paper's
    equations, without a shift of the threshold.

    In the experiment of tables 2 and 3 the features are standardised and the width is selected from a grid.
    KBA's AUC on abalone stays far below the paper's there. The paper gives the values that its search found
    on this dataset, gamma = 0.086 and C = 1,000, and mentions no scaling. With unscaled features this gamma
    gives a much wider kernel. The paper does not say how the sex is coded, nor which distance `|x - x'|` is;
    the column of the SVM shows which distance agrees with the paper's number.

    The protocol explains a part of the difference: unscaled features, balanced penalties and a small C come
    nearest to the paper. It does not explain all of it: with the paper's own C and equal penalties, KBA has
    about the AUC of the SVM that it starts from, and how the paper's KBA reaches 87.4 from there is not
    explained.

    A test part has four or five of the 32 rare rows, so the mean of seven splits is uncertain by several
    points. Here 21 splits are used.
    """
)
