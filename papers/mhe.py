"""MHE-CIL: topics of Reuters-21578 learned one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.metrics import precision_recall_fscore_support
from sklearn.model_selection import train_test_split

from papers.arrays import Floats
from papers.context import Context
from papers.experiment import experiment
from papers.result import Result, Row
from steelyard.datasets import Dataset
from steelyard.enclosing import EnclosingClassifier

PAPER = "MHE-CIL: Mahalanobis hyperellipsoidal class-incremental learning"

Labels = NDArray[Any]
Parameters = Mapping[str, Any]

TOPICS = ("wheat", "corn", "coffee", "soybean", "cocoa")
INCREMENTS = {
    "original": 2,
    "1st increment": 3,
    "2nd increment": 4,
    "3rd increment": 5,
}  # name of the increment: number of known topics
MEASURES = ("precision", "recall", "F1")
TIMES = ("training ms", "testing ms")

# Table 2: macro-averaged precision, recall and F1 in per cent, after each increment.
PAPER_TABLE_2 = {
    "HS": ((72.76, 72.84, 72.79), (79.75, 78.09, 78.85), (74.97, 71.53, 73.21), (76.64, 73.47, 75.02)),
    "HE": ((76.92, 74.52, 75.18), (80.00, 78.53, 79.26), (82.56, 78.72, 80.11), (81.41, 76.61, 78.40)),
    "MHE": ((78.76, 76.64, 77.82), (81.75, 79.73, 80.39), (83.72, 79.63, 81.66), (83.56, 78.31, 81.84)),
}
# Table 3: training and testing in milliseconds, on a Pentium at 1.6 GHz.
PAPER_TABLE_3 = {
    "HS": ((110.0, 94.0), (15.0, 140.0), (32.0, 157.0), (31.0, 204.0)),
    "HE": ((126.0, 83.0), (33.0, 132.0), (36.0, 161.0), (48.0, 185.0)),
    "MHE": ((112.0, 88.0), (16.0, 135.0), (33.0, 158.0), (32.0, 187.0)),
}

# The systems, with the paper's nu as the ridge. The bound of the paper's C = 10 is never active, so a share
# of outliers is set for MHE instead.
SYSTEMS: dict[str, Parameters] = {
    "HS": {"shape": "sphere"},
    "HE": {"ridge": 0.01},
    "MHE": {"ridge": 0.01, "outliers": 0.3},
}

SLACK_SPHERE = "HS with outliers"
PLAIN = "plain"
CEILING = "knows the topics"


# -- texts ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Preparation:
    """Conversion of texts to rows: TF-IDF of the terms with the highest information gain."""

    terms: int = 100
    logarithmic: bool = False  # 1 + log of the counts
    unit_length: bool = True


@dataclass(frozen=True, eq=False)
class Part:
    """Training and test texts as term counts, ordered by information gain."""

    train: Any  # sparse, (n_texts, n_terms)
    test: Any
    y: Labels
    y_test: Labels

    @classmethod
    def of(cls, train: Labels, test: Labels, y: Labels, y_test: Labels) -> Part:
        """Return term counts. Terms are selected on the training texts only."""
        counter = CountVectorizer(token_pattern=r"[a-z]{2,}")  # noqa: S106 - no password
        counts = counter.fit_transform(train)
        order = np.argsort(-information_gain(counts > 0, y), kind="stable")
        return cls(counts[:, order], counter.transform(test)[:, order], y, y_test)

    def rows(self, preparation: Preparation) -> tuple[Floats, Floats]:
        """Return training and test rows."""
        first, last = self.train[:, : preparation.terms], self.test[:, : preparation.terms]
        weights = TfidfTransformer(
            norm="l2" if preparation.unit_length else None, sublinear_tf=preparation.logarithmic
        ).fit(first)
        return weights.transform(first).toarray(), weights.transform(last).toarray()


def split(
    texts: Labels, labels: Labels, seed: int, share: float = 1 / 3
) -> tuple[Labels, Labels, Labels, Labels]:
    """Return stratified training and test texts and their labels."""
    train, test, y, y_test = train_test_split(
        texts, labels, test_size=share, random_state=seed, stratify=labels
    )
    return train, test, y, y_test


def instances(data: Dataset, *, single: bool = False) -> tuple[Labels, Labels]:
    """Return texts and topics: one instance per topic of a document, or only documents with one topic."""
    pairs = [
        (text, topic)
        for text, topics in zip(data.X, data.y, strict=True)
        for topic in TOPICS
        if topic in topics and not (single and len(set(TOPICS) & set(topics)) > 1)
    ]
    texts, labels = zip(*pairs, strict=True)
    return np.array(texts, dtype=object), np.array(labels)


def information_gain(present: Any, labels: Labels) -> Floats:
    """Return the information gain of each term in bits."""
    n, with_term = len(labels), np.asarray(present.sum(axis=0)).ravel()
    gain = np.zeros(len(with_term))
    for label in np.unique(labels):
        mine = labels == label
        counts, total = np.asarray(present[mine].sum(axis=0)).ravel(), int(mine.sum())
        gain += _surprise(np.array([total]), np.array([n]))
        gain -= with_term / n * _surprise(counts, with_term)
        gain -= (1.0 - with_term / n) * _surprise(total - counts, n - with_term)
    return gain


def _surprise(counts: NDArray[Any], totals: NDArray[Any]) -> Floats:
    share = counts / np.maximum(totals, 1)
    return np.asarray(-share * np.log2(np.where(share > 0, share, 1.0)))


# -- topic by topic ---------------------------------------------------------------------------------------


def learn_topic_by_topic(parameters: Parameters, part: Part, preparation: Preparation) -> Floats:
    """Return measures in per cent and times in milliseconds after each increment, (increments, 5)."""
    X, X_test = part.rows(preparation)
    model, known, results = EnclosingClassifier(**parameters), 0, []
    for n_topics in INCREMENTS.values():
        new = np.isin(part.y, TOPICS[known:n_topics])
        asked = np.isin(part.y_test, TOPICS[:n_topics])
        begin = perf_counter()
        model.partial_fit(X[new], part.y[new])
        model.radius_  # noqa: B018 - bodies are trained when they are first asked for
        trained = perf_counter()
        answers = model.predict(X_test[asked])
        times = [1e3 * (trained - begin), 1e3 * (perf_counter() - trained)]
        results.append([*macro_scores(part.y_test[asked], answers), *times])
        known = n_topics
    return np.array(results)


def macro_scores(truth: Labels, answers: Labels) -> list[float]:
    """Return macro-averaged precision, recall and F1 in per cent."""
    scores = precision_recall_fscore_support(truth, answers, average="macro", zero_division=0.0)
    return [100.0 * float(score) for score in scores[:3]]


# -- parameters that the paper does not give, selected on training rows ---------------------------------


@dataclass(frozen=True)
class Choices:
    """Candidate settings among which validation chooses."""

    terms: tuple[int, ...] = (20, 40, 100)
    logarithmic: tuple[bool, ...] = (False, True)
    ridges: tuple[float, ...] = (0.01, 0.1, 1.0)
    outliers: tuple[float, ...] = (0.1, 0.2, 0.3)
    rounds: int = 5

    def parameters(self) -> dict[str, list[Parameters]]:
        """Return the free parameters of each system: none, the ridge, the share of outliers, or both."""
        return {
            "HS": [SYSTEMS["HS"]],
            "HE": [{"ridge": ridge} for ridge in self.ridges],
            "MHE": [{"ridge": ridge, "outliers": s} for ridge, s in product(self.ridges, self.outliers)],
            SLACK_SPHERE: [{"shape": "sphere", "outliers": share} for share in self.outliers],
        }


def choose(
    texts: Labels, labels: Labels, choices: Choices, rng: np.random.Generator
) -> dict[str, tuple[Parameters, Preparation]]:
    """Return parameters and preparation with the best mean F1 over splits, for each system."""
    seeds = rng.integers(2**31, size=choices.rounds)
    parts = [Part.of(*split(texts, labels, int(seed), share=1 / 5)) for seed in seeds]
    candidates = choices.parameters()
    preparations = [Preparation(*how) for how in product(choices.terms, choices.logarithmic)]
    best = dict.fromkeys(candidates, -np.inf)
    chosen: dict[str, tuple[Parameters, Preparation]] = {}
    for preparation in preparations:
        rows = [(*part.rows(preparation), part) for part in parts]
        for system, options in candidates.items():
            for parameters in options:
                score = float(np.mean([_f1(parameters, X, X_test, part) for X, X_test, part in rows]))
                if score > best[system]:
                    best[system], chosen[system] = score, (parameters, preparation)
    return chosen


def _f1(parameters: Parameters, X: Floats, X_test: Floats, part: Part) -> float:
    model = EnclosingClassifier(**parameters).fit(X, part.y)
    return macro_scores(part.y_test, model.predict(X_test))[2]


# -- tables -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Round:
    """One split of the texts."""

    texts: Labels
    labels: Labels
    seed: int
    choices: Choices

    def part(self) -> Part:
        """Return the split as term counts."""
        return Part.of(*split(self.texts, self.labels, self.seed))


PLAIN_PREPARATION = Preparation(terms=20, unit_length=False)

_TABLE_2_NOTES = (
    """The paper's list of 896 texts is not known. Here the 736 documents of the five topics give 900
    texts: a document counts once for each of its topics, as the paper's counts (305, 252, 145, 119, 75)
    suggest. The texts are split 2:1 at random; terms and weights come from the training part.""",
    f"""For HS, HE, MHE and {SLACK_SPHERE} the number of terms, logarithmic counts, ridge and share of
    outliers are chosen by splits of the training part alone, by the F1 of all five topics. The paper's C
    = 10 allows no outliers, since the weights of a sphere or ellipsoid sum to 1.""",
    f"""HS, HE and MHE, {PLAIN}: 20 terms, TF-IDF without normalization to unit length, the paper's nu =
    0.01 as the ridge, 30 % outliers for MHE. With these settings the order is the paper's, HS below HE
    below MHE. Long texts are far from the centre; they enlarge a sphere in all directions, an ellipsoid
    in few, and an ellipsoid with outliers hardly at all. At unit length the sphere has no such
    disadvantage: all systems gain, the sphere most, and the three are within a point of each other.""",
    f"""'{CEILING}' predicts one of the true topics of the text, chosen at random. 293 of the 900
    instances are documents that occur again under another topic, so no prediction can be right for all of
    them: this line is about the most that any learner can reach. The paper's MHE is within two points of
    it after the 2nd and 3rd increment, but seven and ten points below it before, where the texts are
    easier. The paper's instances were therefore probably different.""",
)
_TABLE_3_NOTES = (
    """All systems use 100 terms, unit length and ridge 0.01; MHE has 30 % outliers. The paper's machine
    was a Pentium at 1.6 GHz. As in the paper, a new topic costs only the training of its own sphere or
    ellipsoid.""",
)


def _rounds(context: Context, full: int, quick: int) -> list[Round]:
    texts, labels = instances(context.load("reuters5"))
    tiny = Choices((20,), (False,), (0.01, 1.0), (0.3,), rounds=1)
    choices = context.pick(Choices(), Choices(rounds=3), tiny)
    count = context.pick(full, quick, 2)
    return [Round(texts, labels, context.integer("split", number), choices) for number in range(count)]


@experiment("mhe-table-2", paper=PAPER, title="Table 2: macro precision, recall and F1 after each increment")
def table_2(context: Context) -> Result:
    rounds = context.map(_measured, _rounds(context, full=20, quick=4), "splits")
    rows = []
    for learner in rounds[0]:
        paper = possible(PAPER_TABLE_2.get(learner.removesuffix(f", {PLAIN}")))
        rows += _rows(learner, MEASURES, [found[learner] for found in rounds], paper, tolerance=1.0)
    return Result(rows, notes=[*_unfolded(_TABLE_2_NOTES), _impossible_note()], layout="wide")


Printed = tuple[tuple[float, float, float], ...]


def most_f1(precision: float, recall: float) -> float:
    """Return an upper bound of mean F1 from mean precision and recall. It holds because F1 is concave."""
    return 2.0 * precision * recall / (precision + recall)


def possible(printed: Printed | None) -> Printed | None:
    """Return the published numbers, with F1 reduced to its upper bound."""
    return printed and tuple((p, r, min(f1, most_f1(p, r))) for p, r, f1 in printed)


def _impossible_note() -> str:
    found = [
        f"{system} {increment} {f1} (upper bound {most_f1(p, r):.2f})"
        for system, printed in PAPER_TABLE_2.items()
        for increment, (p, r, f1) in zip(INCREMENTS, printed, strict=True)
        if f1 > most_f1(p, r) + 0.005
    ]
    return (
        "The mean F1 over the classes cannot exceed the harmonic mean of mean precision and mean recall, "
        f"as F1 is concave in both. The paper reports F1 values above this bound: {', '.join(found)}. Our "
        "values are compared with the bound there."
    )


def _measured(item: Round) -> dict[str, Floats]:
    """Return measures of every learner after each increment."""
    train, _, y, _ = split(item.texts, item.labels, item.seed)
    rng = np.random.default_rng(item.seed)
    chosen = choose(train, y, item.choices, rng)
    part = item.part()
    found = {
        system: learn_topic_by_topic(parameters, part, preparation)
        for system, (parameters, preparation) in chosen.items()
    }
    for system, parameters in SYSTEMS.items():
        found[f"{system}, {PLAIN}"] = learn_topic_by_topic(parameters, part, PLAIN_PREPARATION)
    found[CEILING] = _ceiling(item, rng)
    return {learner: results[:, : len(MEASURES)] for learner, results in found.items()}


def _ceiling(item: Round, rng: np.random.Generator) -> Floats:
    """Return measures of an oracle that knows all topics of a text, but not which is the instance's label."""
    topics: dict[str, list[str]] = {}
    for text, label in zip(item.texts, item.labels.tolist(), strict=True):
        topics.setdefault(text, []).append(label)
    _, test, _, y_test = split(item.texts, item.labels, item.seed)
    results = []
    for n_topics in INCREMENTS.values():
        asked = np.isin(y_test, TOPICS[:n_topics])
        known = [[topic for topic in topics[text] if topic in TOPICS[:n_topics]] for text in test[asked]]
        answers = np.array([options[rng.integers(len(options))] for options in known])
        results.append(macro_scores(y_test[asked], answers))
    return np.array(results)


@experiment("mhe-table-3", paper=PAPER, title="Table 3: training and testing times")
def table_3(context: Context) -> Result:
    rounds = context.map(_timed, _rounds(context, full=20, quick=10), "splits")
    rows = []
    for system, paper in PAPER_TABLE_3.items():
        rows += _rows(system, TIMES, [found[system] for found in rounds], paper, aim="low", timed=True)
    return Result(rows, notes=_unfolded(_TABLE_3_NOTES), layout="wide")


def _timed(item: Round) -> dict[str, Floats]:
    part = item.part()
    return {
        system: learn_topic_by_topic(parameters, part, Preparation())[:, len(MEASURES) :]
        for system, parameters in SYSTEMS.items()
    }


def _unfolded(notes: tuple[str, ...]) -> list[str]:
    return [" ".join(note.split()) for note in notes]


def _rows(learner: str, measures: tuple[str, ...], found: list[Floats], paper: Any, **rest: Any) -> list[Row]:
    """Return one row per increment and measure."""
    values = np.array(found)  # (rounds, increments, measures)
    return [
        Row.of(
            increment,
            learner,
            measure,
            values[:, place, number],
            paper=paper[place][number] if paper else None,
            digits=2,
            **rest,
        )
        for place, increment in enumerate(INCREMENTS)
        for number, measure in enumerate(measures)
    ]
