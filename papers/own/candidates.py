"""Candidate learners of this library, and their selection within the training rows."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from papers.arrays import Floats, Labels, Rows
from papers.context import Context
from papers.result import paragraphs
from steelyard import IncrementalSVC, ProximalSVC, RandomFeatures, StreamClassifier
from steelyard.metrics import g_mean_score, roc_auc_score

__all__ = [
    "AUTOMATIC",
    "CHOSEN",
    "OWN",
    "RULE",
    "STREAM",
    "Contest",
    "Field",
    "Outcome",
    "automatic",
    "field_of",
    "held",
    "told",
]

OWN = "The best of this library"

Answers = dict[str, dict[str, float]]  # values by learner and measure
Measure = Callable[[Any, Floats, Labels], float]  # value for a learner on rows and labels

CHOSEN, STREAM, AUTOMATIC = "chosen by validation", "StreamClassifier", "ProximalSVC, automatic"
WLPSVM = "wLPSVM"
_SHOWN = (STREAM, AUTOMATIC, WLPSVM)  # candidates that are shown even if they are not chosen
_CHUNK = 100  # rows per call of partial_fit
_FOLDS = 3


@dataclass(frozen=True)
class Candidate:
    """A candidate: a factory of a learner, and whether it learns in chunks."""

    make: Callable[[], Any]
    streams: bool = False

    def taught(self, X: Floats, y: Labels) -> Any:
        """Return a learner trained on the rows in order."""
        if not self.streams:
            return self.make().fit(X, y)
        learner = self.make()
        for begin in range(0, len(y), _CHUNK):
            rows = slice(begin, begin + _CHUNK)
            learner.partial_fit(X[rows], y[rows], classes=[0, 1])
        return learner


@dataclass(frozen=True)
class Field:
    """Grid of candidates, the same for all datasets of an experiment.

    Attributes
    ----------
    components : tuple of int
        Numbers of random features; the last one is that of "ProximalSVC, automatic".
    kernels, penalties, widths : tuple
        Kernels, C and widths of IncrementalSVC. A width is gamma times the number of features.
    stream, plain : bool
        Whether StreamClassifier is a candidate, and the plain wLPSVM of the papers, with C = 1.
    """

    components: tuple[int, ...] = (300,)
    kernels: tuple[str, ...] = ("rbf", "laplacian")
    penalties: tuple[float, ...] = (10.0,)
    widths: tuple[float, ...] = (0.3, 1.0)
    stream: bool = True
    plain: bool = False

    def candidates(self, n_features: int, seed: int) -> dict[str, Candidate]:
        """Return all candidates by name."""
        found: dict[str, Candidate] = {}
        if self.stream:
            found[STREAM] = Candidate(partial(StreamClassifier, random_state=seed), streams=True)
        if self.plain:
            found[WLPSVM] = Candidate(partial(_standardised, ProximalSVC, standardize=False))
        linear = partial(ProximalSVC, C="auto", objective="auc", threshold="gmean")
        found["ProximalSVC, linear"] = Candidate(linear)
        most = self.components[-1]
        for k in self.components:
            name = AUTOMATIC if k == most else f"ProximalSVC, {k} features"
            found[name] = Candidate(partial(automatic, k, seed, threshold="gmean"))
        found["ProximalSVC, balanced"] = Candidate(partial(automatic, most, seed, objective="margin"))
        for kernel, C, width in product(self.kernels, self.penalties, self.widths):
            options = {"C": C, "kernel": kernel, "gamma": width / n_features, "class_weight": "balanced"}
            name = f"IncrementalSVC, {kernel}, C {C:g}, width {width:g}"
            found[name] = Candidate(partial(_standardised, IncrementalSVC, **options))
        return found


def field_of(context: Context, **options: Any) -> Field:
    """Return the grid of candidates of a run. A tiny run has no kernels and no streams."""
    tiny: dict[str, Any] = {"components": (30,), "kernels": (), "stream": False}
    return Field(**{**options, **context.pick({}, {}, tiny)})


def automatic(
    n_components: int, seed: int, *, objective: str = "auc", threshold: str = "zero"
) -> ProximalSVC:
    """Return the proximal learner with automatic C and feature map widths."""
    features = RandomFeatures(n_components, random_state=seed)
    return ProximalSVC(C="auto", objective=objective, threshold=threshold, feature_map=features)


def _standardised(learner: Callable[..., Any], **options: Any) -> Any:
    return make_pipeline(StandardScaler(), learner(**options))


def area(learner: Any, X: Floats, y: Labels) -> float:
    """Return the AUC."""
    return float(roc_auc_score(y, learner.decision_function(X)))


def balance(learner: Any, X: Floats, y: Labels) -> float:
    """Return the G-mean at the threshold of the learner."""
    return float(g_mean_score(y, learner.predict(X), pos_label=1))


MEASURES: dict[str, Measure] = {"AUC": area, "G-mean": balance}


@dataclass(frozen=True, eq=False)
class Contest:
    """One training and test split for all candidates."""

    subject: str
    X: Floats
    y: Labels
    train: Rows
    test: Rows
    measures: tuple[str, ...]
    field: Field
    seed: int

    def key(self) -> dict[str, Any]:
        """Return everything that the result depends on."""
        data = zlib.crc32(np.ascontiguousarray(self.X).tobytes())
        for rows in (self.train, self.test):
            data = zlib.crc32(np.asarray(rows, dtype=np.int64).tobytes(), data)
        return {
            "experiment": "own", "on": self.subject, "measures": list(self.measures), "seed": self.seed,
            "data": data, "field": asdict(self.field),
        }  # fmt: skip

    def held(self) -> tuple[str, Answers]:
        """Select a candidate by cross-validation on the training rows, then evaluate it on the test rows.

        Returns
        -------
        name : str
            The candidate with the highest mean of the measures over the folds.
        answers : dict
            The measures on the test rows, of the chosen candidate and of those that are always shown.
        """
        X, y = self.X[self.train], self.y[self.train]
        candidates = self.field.candidates(X.shape[1], self.seed)
        name = self._chosen(candidates, X, y)
        shown = [name, *(who for who in _SHOWN if who in candidates)]
        answers = {who: self._measured(candidates[who], X, y) for who in dict.fromkeys(shown)}
        return name, {CHOSEN: answers[name], **{who: answers[who] for who in shown[1:]}}

    def _chosen(self, candidates: Mapping[str, Candidate], X: Floats, y: Labels) -> str:
        splitter = StratifiedKFold(_FOLDS, shuffle=True, random_state=self.seed)
        folds = list(splitter.split(X, y))

        def quality(name: str) -> float:
            found = []
            for inside, outside in folds:
                learner = candidates[name].taught(X[inside], y[inside])
                found += [MEASURES[measure](learner, X[outside], y[outside]) for measure in self.measures]
            return float(np.mean(found))

        return max(candidates, key=quality)

    def _measured(self, candidate: Candidate, X: Floats, y: Labels) -> dict[str, float]:
        learner = candidate.taught(X, y)
        return {name: MEASURES[name](learner, self.X[self.test], self.y[self.test]) for name in self.measures}


def held(context: Context, contests: Sequence[Contest]) -> dict[str, Outcome]:
    """Run all splits; return outcomes by subject."""
    answers = context.map(Contest.held, contests, "contests", key=Contest.key)
    found: dict[str, Outcome] = {}
    for contest, (name, values) in zip(contests, answers, strict=True):
        outcome = found.setdefault(contest.subject, Outcome([], {}))
        outcome.chosen.append(name)
        for learner, by_measure in values.items():
            for measure, value in by_measure.items():
                outcome.values.setdefault((learner, measure), []).append(value)
    return found


@dataclass(frozen=True)
class Outcome:
    """Results of a dataset: the selected candidate of each round, and values by learner and measure."""

    chosen: list[str]
    values: dict[tuple[str, str], list[float]]


def told(outcomes: Mapping[str, Outcome]) -> str:
    """Return a note on how often each candidate was selected on each dataset."""
    parts = []
    for subject, outcome in outcomes.items():
        counted = Counter(name.split(", C ")[0] for name in outcome.chosen)
        parts.append(f"{subject}: " + ", ".join(f"{name} ({n})" for name, n in counted.most_common()))
    return f"Learners selected by cross-validation, with the number of rounds: {'; '.join(parts)}."


RULE = paragraphs(
    """
    "Chosen by validation" is the learner of this library that was best in three-fold cross-validation within
    the training part, by the measures of the table. It was then trained on the whole training part; test rows
    were not used. The candidates are: StreamClassifier, which learns the rows in chunks of 100 in their
    order; ProximalSVC with C="auto" by AUC and the threshold for the G-mean, linear or with 300 random
    features (the latter is "ProximalSVC, automatic"); ProximalSVC with 300 random features, C="auto" by the
    margin and balanced weights; and IncrementalSVC with balanced weights on standardised rows, C = 10, with
    an rbf or Laplacian kernel whose gamma is 0.3 or 1 over the number of features. To save time the
    candidates were reduced from 23 to eight, after first results on some of the datasets had been seen.
    """
)
