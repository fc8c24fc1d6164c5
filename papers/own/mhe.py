"""Texts of the MHE-CIL paper: table 2 with the best of this library."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import precision_recall_fscore_support
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit

from papers.context import Context
from papers.experiment import experiment
from papers.mhe import INCREMENTS, MEASURES, PAPER_TABLE_2, TOPICS, instances, possible
from papers.own.candidates import CHOSEN, OWN, STREAM
from papers.result import Result, Row, paragraphs
from steelyard import EnclosingClassifier, IncrementalSVC, ProximalSVC, StreamClassifier

__all__ = ["on_mhe"]

Answer = dict[str, dict[str, Any]]  # by number of topics: who was chosen, and measures by learner

_CANDIDATES: dict[str, Callable[[], Any]] = {
    **{f"ProximalSVC, C {C:g}": partial(ProximalSVC, C, standardize=False) for C in (1.0, 10.0, 100.0)},
    **{
        f"IncrementalSVC, linear, C {C:g}": partial(
            IncrementalSVC, C, kernel="linear", class_weight="balanced"
        )
        for C in (0.1, 1.0, 10.0)
    },
    "EnclosingClassifier, ellipsoid": partial(EnclosingClassifier, ridge=0.01, outliers=0.3),
    "EnclosingClassifier, sphere": partial(EnclosingClassifier, shape="sphere"),
    STREAM: partial(StreamClassifier, random_state=0),
}


@dataclass(frozen=True, eq=False)
class _TextSplit:
    counting: str
    texts: NDArray[Any]
    topics: NDArray[Any]
    seed: int

    def key(self) -> dict[str, Any]:
        """Return everything that the result depends on."""
        data = zlib.crc32("\n".join([*self.texts, *self.topics]).encode())
        return {
            "experiment": "own-mhe", "on": self.counting, "candidates": list(_CANDIDATES), "seed": self.seed,
            "data": data,
        }  # fmt: skip

    def answer(self) -> Answer:
        """Return the candidate selected within the training texts and its test results, by increment."""
        splitter = StratifiedShuffleSplit(1, test_size=1 / 3, random_state=self.seed)
        ((train, test),) = splitter.split(self.texts, self.topics)
        weights = TfidfVectorizer(sublinear_tf=True, min_df=2, max_features=1000)
        X, asked = (
            weights.fit_transform(self.texts[train]).toarray(),
            weights.transform(self.texts[test]).toarray(),
        )
        y, right = self.topics[train], self.topics[test]
        folds = list(StratifiedKFold(3, shuffle=True, random_state=self.seed).split(X, y))
        inside = {
            name: [_walked(name, X[known], y[known], X[left], y[left]) for known, left in folds]
            for name in _CANDIDATES
        }
        found: Answer = {}
        walks: dict[str, dict[int, dict[str, float]]] = {}
        for n_topics in INCREMENTS.values():
            quality = {
                name: np.mean([walk[n_topics]["F1"] for walk in in_folds])
                for name, in_folds in inside.items()
            }
            name = max(quality, key=lambda who: quality[who])
            for who in (name, STREAM):
                if who not in walks:
                    walks[who] = _walked(who, X, y, asked, right)
            found[str(n_topics)] = {
                "chosen": name,
                CHOSEN: walks[name][n_topics],
                STREAM: walks[STREAM][n_topics],
            }
        return found


def _walked(name: str, X: Any, y: Any, asked: Any, right: Any) -> dict[int, dict[str, float]]:
    """Return measures by the number of topics; a new topic is learned without texts of earlier ones."""
    learner = _CANDIDATES[name]()
    found = {}
    known = 0
    for n_topics in INCREMENTS.values():
        new, among = np.isin(y, TOPICS[known:n_topics]), np.isin(right, TOPICS[:n_topics])
        learner.partial_fit(X[new], y[new])
        found[n_topics] = _measured(learner, asked[among], right[among])
        known = n_topics
    return found


def _measured(learner: Any, X: Any, right: Any) -> dict[str, float]:
    scores = precision_recall_fscore_support(right, learner.predict(X), average="macro", zero_division=0)
    return {name: 100.0 * float(score) for name, score in zip(MEASURES, scores[:3], strict=True)}


@experiment("own-mhe", paper=OWN, title="MHE-CIL's texts")
def on_mhe(context: Context) -> Result:
    rows, notes = [], []
    for _, data in context.sets(["reuters5"]):
        for counting in ("each topic of a document", "documents of one topic"):
            texts, topics = instances(data, single=counting == "documents of one topic")
            work = [
                _TextSplit(counting, texts, topics, context.integer(counting, number))
                for number in range(context.pick(20, 3, 2))
            ]
            answers = context.map(_TextSplit.answer, work, counting, key=_TextSplit.key)
            printed = possible(PAPER_TABLE_2["MHE"]) or ()
            for n_topics, figures_of in zip(INCREMENTS.values(), printed, strict=True):
                subject = f"{n_topics} topics, {counting}"
                for who, (measure, paper) in product(
                    (CHOSEN, STREAM), zip(MEASURES, figures_of, strict=True)
                ):
                    values = [answer[str(n_topics)][who][measure] for answer in answers]
                    figures: dict[str, Any] = {"paper": paper, "tolerance": 1.0, "digits": 2}
                    rows.append(Row.of(subject, who, measure, values, **figures))
            counted = Counter(one["chosen"] for answer in answers for one in answer.values())
            names = ", ".join(f"{name} {n}" for name, n in counted.most_common())
            notes.append(f"Who was chosen, and how often, {counting}: {names}.")
    return Result(rows, [*_NOTES, *notes], layout="wide")


_NOTES = paragraphs(
    """
    The paper's figures are those of MHE-CIL, its best, F1 lowered to what its precision and recall
    allow (`mhe-table-2`). A third of the texts is for testing; TF-IDF weights of
    1,000 terms, a number that is fixed here: with terms chosen by validation the sphere alone has a higher F1
    (`mhe-table-2`). "Chosen by validation" is the candidate with the largest macro F1 in three folds inside
    the texts to learn, chosen again after each increment: ProximalSVC (C 1, 10, 100), IncrementalSVC (linear,
    C 0.1, 1, 10), EnclosingClassifier (sphere, ellipsoid with 30 % outliers) and StreamClassifier. All of
    them learn one topic after the other by `partial_fit`; to StreamClassifier, a learner of changing streams,
    a topic that stops coming is a change, and it has its own lines whether it is chosen or not.

    The paper has 896 texts. Counting a document once for each of its topics gives 900 here and is what
    comes nearest, but then a document of two topics (wheat and corn, soybean and corn) stands in the data
    with both labels, and whatever is answered is wrong for one of them: even who knows every document is
    right for 736 of 900, 81.8 %. The paper's figures are at that limit, so its texts were hardly counted
    so. Of documents with one topic there are 607. Which texts the paper took is not known; its figure
    stands beside both.
    """
)
