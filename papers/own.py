"""The best of this library beside the best that each paper prints for its sets: matching is not the goal."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import precision_recall_fscore_support
from sklearn.model_selection import StratifiedShuffleSplit

from papers.context import Context
from papers.dcil.static import Round, problem, sizes_of, table_row
from papers.experiment import experiment
from papers.result import Result, Row, paragraphs
from steelyard.datasets import Dataset, Split
from steelyard.features import RandomFeatures
from steelyard.metrics import g_mean_score, roc_auc_score
from steelyard.persistence import to_bytes
from steelyard.proximal import ProximalSVC

__all__ = ["koil_large", "koil_medium", "koil_small", "on_dcil", "on_kba", "on_mhe"]

OWN = "The best of this library"

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

# -- KOIL -----------------------------------------------------------------------------------------

# The best mean AUC of tables 3.2, 3.3 and 4.1 over all learners of the thesis' own.
PAPER_KOIL_BEST = {
    "sonar": 0.957, "australian": 0.923, "heart": 0.911, "ionosphere": 0.985, "diabetes": 0.831,
    "glass": 0.893, "german": 0.778, "svmguide2": 0.906, "segment": 0.994, "satimage": 0.939,
    "vowel": 1.000, "letter": 0.968, "poker": 0.709, "shuttle": 0.956, "s4": 0.968, "s10": 0.962,
    "s50": 0.943, "s100": 0.968,
}  # fmt: skip
_KOIL_BUDGET = 200  # support vectors, both buffers
_AUTOMATIC, _EQUAL = "ProximalSVC, automatic", "ProximalSVC, memory of KOIL"


@dataclass(frozen=True, eq=False)
class _KoilRun:
    """One of the authors' runs."""

    name: str
    X: Floats
    y: Labels
    split: Split
    n_components: dict[str, int]
    seed: int

    def key(self) -> dict[str, Any]:
        """All that the answer depends on."""
        data = zlib.crc32(self.split.test.tobytes(), zlib.crc32(np.ascontiguousarray(self.X).tobytes()))
        return {
            "experiment": "own-koil",
            "set": self.name,
            "n_components": self.n_components,
            "seed": self.seed,
            "data": data,
        }


@experiment("own-koil-small", paper=OWN, title="KOIL's sets of up to 1,000 rows")
def koil_small(context: Context) -> Result:
    names = ("sonar", "australian", "heart", "ionosphere", "diabetes", "glass", "german", "svmguide2")
    return _beside_koil(context, names[: context.pick(8, 8, 2)])


@experiment("own-koil-medium", paper=OWN, title="KOIL's sets of up to 10,100 rows and synthetic ones")
def koil_medium(context: Context) -> Result:
    return _beside_koil(
        context, ("segment", "satimage", "vowel", "s4", "s10", "s50", "s100")[-context.pick(7, 7, 1) :]
    )


@experiment("own-koil-large", paper=OWN, title="KOIL's largest sets")
def koil_large(context: Context) -> Result:
    return _beside_koil(context, ("letter", "poker", "shuttle")[: context.pick(3, 3, 1)])


def _beside_koil(context: Context, names: Sequence[str]) -> Result:
    work: list[_KoilRun] = []
    for full_name, data in context.sets([f"koil_{name}" for name in names]):
        name, X, y = full_name.removeprefix("koil_"), data.numbers(), data.binary(1)
        splits = context.load_splits(full_name)
        components = {
            _AUTOMATIC: context.pick(1000, 1000, 30),
            _EQUAL: _components_for(_koil_bytes(X.shape[1]), X.shape[1]),
        }
        work += [
            _KoilRun(name, X, y, splits[k], components, context.integer(name, k))
            for k in range(context.pick(_n_runs(len(y)), 1, 1))
        ]
    answers = context.map(_koil_run, work, "runs", key=_KoilRun.key)
    rows = []
    for name in dict.fromkeys(run.name for run in work):
        own = [answer for run, answer in zip(work, answers, strict=True) if run.name == name]
        for learner in (_AUTOMATIC, _EQUAL):
            areas, sizes = zip(*(answer[learner] for answer in own), strict=True)
            paper = PAPER_KOIL_BEST[name]
            rows.append(Row.of(name, learner, "AUC", areas, paper=paper, tolerance=0.002))
            rows.append(Row(name, learner, "memory, kB", float(np.mean(sizes)) / 1000, aim="low", digits=0))
        width = next(run.X.shape[1] for run in work if run.name == name)
        rows.append(Row(name, "KOIL", "memory, kB", _koil_bytes(width) / 1000, aim="low", digits=0))
    return Result(rows, _KOIL_NOTES, layout="wide")


_KOIL_NOTES = paragraphs(
    """
    The paper's figure is the best mean AUC that the thesis prints for any of its own learners, single or
    multiple kernels, on the same files. Ours is over the authors' 20 runs for sets of up to 1,000 rows, the
    first ten for those of up to 10,000 and the first five for larger ones. "Automatic" is
    `ProximalSVC(C="auto", objective="auc", feature_map=RandomFeatures())` with nothing chosen by hand, in
    one pass over the training part.

    Memory is the size of the saved learner, which is all it needs to go on learning. KOIL keeps 200 support
    vectors and, so that a step stays cheap, the kernel values between them. The second line has as many
    random features as fit into that memory.

    KOIL's memory is counted by a formula, not measured. The number of features that fits into it was
    lowered twice, after saved learners of australian and poker had come out larger.

    The authors' order of the rows of shuttle is not known; its runs are other ones than theirs. The map and
    the rule for C were compared on these same splits before they became the default, so read small
    differences as ties.
    """
)


def _n_runs(n_rows: int) -> int:
    """How many of the authors' runs are taken; a run on many rows takes long and varies little."""
    return 20 if n_rows <= 1000 else 10 if n_rows < 10_000 else 5


def _koil_bytes(n_features: int) -> int:
    return 8 * (_KOIL_BUDGET * n_features + _KOIL_BUDGET**2 + _KOIL_BUDGET)


def _components_for(n_bytes: int, n_features: int) -> int:
    """The most random features whose map and statistics fit into the bytes.

    Two classes have a triangle for each of five folds and for the whole; six more are for what else is
    stored.
    """
    return max(
        k
        for k in range(1, 1000)
        if 8 * (18 * (k + 1) * (k + 2) // 2 + 2 * k * (n_features + 2)) + 8192 <= n_bytes
    )


def _automatic(
    n_components: int, seed: int, *, objective: str = "auc", threshold: str = "zero"
) -> ProximalSVC:
    features = RandomFeatures(n_components, random_state=seed)
    return ProximalSVC(C="auto", objective=objective, threshold=threshold, feature_map=features)


def _koil_run(work: _KoilRun) -> dict[str, tuple[float, int]]:
    """AUC and bytes of each learner."""
    train, test = work.split.train, work.split.test
    answers = {}
    for learner, n_components in work.n_components.items():
        model = _automatic(n_components, work.seed).fit(work.X[train], work.y[train])
        area = roc_auc_score(work.y[test], model.decision_function(work.X[test]))
        answers[learner] = (float(area), len(to_bytes(model)))
    return answers


# -- KBA ------------------------------------------------------------------------------------------

# The best of the paper, which is KBA everywhere: G-mean and AUC in percent, mean and spread.
PAPER_KBA_BEST = {
    "segmentation": {"G-mean": (98.1, None), "AUC": (100.0, 0.0)},
    "glass": {"G-mean": (93.7, None), "AUC": (98.9, 2.6)},
    "euthyroid": {"G-mean": (94.6, None), "AUC": (98.8, 1.5)},
    "car": {"G-mean": (99.9, None), "AUC": (99.9, 0.1)},
    "yeast": {"G-mean": (82.2, None), "AUC": (95.2, 2.5)},
    "abalone": {"G-mean": (57.8, None), "AUC": (87.4, 6.8)},
}
_KBA_SETS = {
    "segmentation_210": ("segmentation", "BRICKFACE"),
    "glass": ("glass", 7),
    "euthyroid_2000": ("euthyroid", "sick-euthyroid"),
    "car": ("car", "good"),
    "yeast": ("yeast", "ME2"),
    "abalone": ("abalone", 19),
}


@dataclass(frozen=True, eq=False)
class _KbaSplit:
    X: Floats
    y: Labels
    n_components: int
    seed: int


@experiment("own-kba", paper=OWN, title="KBA's sets")
def on_kba(context: Context) -> Result:
    rows = []
    for file, data in context.sets([*_KBA_SETS][: context.pick(6, 6, 2)]):
        name, target = _KBA_SETS[file]
        X, y = data.numbers(nominal="onehot"), data.binary(target)
        n_components = context.pick(1000, 300, 40)
        work = [
            _KbaSplit(X, y, n_components, context.integer(name, number))
            for number in range(context.pick(7, 3, 3))
        ]
        told = context.map(_kba_split, work, name)
        for learner in _KBA_LEARNERS:
            for measure, (paper, spread) in PAPER_KBA_BEST[name].items():
                values = [one[learner][measure] for one in told]
                figures = {"paper": paper, "paper_std": spread, "tolerance": 0.5, "digits": 1}
                rows.append(Row.of(name, learner, measure, values, **figures))
    return Result(rows, _KBA_NOTES, layout="wide")


_KBA_LEARNERS: dict[str, dict[str, str]] = {
    "ProximalSVC, balanced": {},
    "ProximalSVC, for AUC, cut for G-mean": {"objective": "auc", "threshold": "gmean"},
}
_KBA_NOTES = paragraphs(
    """
    The paper's figures are those of KBA, its best. Ours are `ProximalSVC(C="auto",
    feature_map=RandomFeatures())` as it comes, balanced weights and the cut at zero, and the same with
    `objective="auc", threshold="gmean"`. Nothing is chosen by cross-validation outside the learner, and it
    learns in one pass. Splits are stratified, 6 : 1, seven of them, as in the paper. A test part has 5 to
    10 rows of the rare class in four of the sets, so that a single row moves the G-mean by several points.

    Where the features are more than the rows (segmentation: 180 rows, 1,000 features) the scores of the
    learned rows say little about those of others, and a cut placed by them is worse than the plain one at
    zero.

    The first of the two was added after the second had been seen to do badly on segmentation; both are
    shown for every set.
    """
)


def _kba_split(work: _KbaSplit) -> dict[str, dict[str, float]]:
    """G-mean and AUC of every learner."""
    splitter = StratifiedShuffleSplit(1, test_size=1 / 7, random_state=work.seed)
    (train, test) = next(splitter.split(work.X, work.y))
    told = {}
    for learner, parameters in _KBA_LEARNERS.items():
        model = _automatic(work.n_components, work.seed, **{"objective": "margin", **parameters})
        model.fit(work.X[train], work.y[train])
        told[learner] = {
            "G-mean": 100.0 * float(g_mean_score(work.y[test], model.predict(work.X[test]), pos_label=1)),
            "AUC": 100.0 * float(roc_auc_score(work.y[test], model.decision_function(work.X[test]))),
        }
    return told


# -- DCIL -----------------------------------------------------------------------------------------


@experiment("own-dcil", paper=OWN, title="DCIL's sets")
def on_dcil(context: Context) -> Result:
    rows = []
    for file, data in context.sets(["breast_wisconsin", "car", "abalone"]):
        name, X, y = problem(file, data)
        for n_common in sizes_of(name)[: context.pick(4, 4, 1)]:
            work = [
                Round(X, y, n_common, context.integer(name, n_common, number))
                for number in range(context.pick(50, 10, 3))
            ]
            told = context.map(_dcil_round, work, f"{name}, {n_common} rows")
            rows.append(table_row(name, n_common, (_AUTOMATIC, "DCIL-IncLPSVM"), "G-mean", told))
    return Result(rows, _DCIL_NOTES)


_DCIL_NOTES = paragraphs(
    """
    The paper's figure is DCIL-IncLPSVM's G-mean in table 5.3. "Automatic" is `ProximalSVC(C="auto",
    objective="auc", threshold="gmean", feature_map=RandomFeatures(200))`, learned in the same random chunks
    from the same numbers of rows, of which 20 are of the rare class.
    """
)


def _dcil_round(work: Round) -> float:
    train, test, cuts = work.parts()
    model = _automatic(200, work.seed, threshold="gmean")
    chunks = np.split(train, cuts)
    # The map takes its widths from the first rows, so these are not to be fewer than ten.
    first = next(k for k in range(1, len(chunks) + 1) if sum(map(len, chunks[:k])) >= 10)
    for chunk in [np.concatenate(chunks[:first]), *chunks[first:]]:
        model.partial_fit(work.X[chunk], work.y[chunk], classes=[0, 1])
    return 100.0 * float(g_mean_score(work.y[test], model.predict(work.X[test]), pos_label=1))


# -- MHE-CIL --------------------------------------------------------------------------------------

# Table 2: macro-averages of precision, recall and F1 of MHE-CIL, the paper's best, in percent.
PAPER_MHE_BEST = {
    2: {"precision": 78.76, "recall": 76.64, "F1": 77.82},
    3: {"precision": 81.75, "recall": 79.73, "F1": 80.39},
    4: {"precision": 83.72, "recall": 79.63, "F1": 81.66},
    5: {"precision": 83.56, "recall": 78.31, "F1": 81.84},
}
_TOPICS = ("wheat", "corn", "coffee", "soybean", "cocoa")


@dataclass(frozen=True, eq=False)
class _TextSplit:
    texts: NDArray[Any]
    topics: NDArray[Any]
    seed: int


@experiment("own-mhe", paper=OWN, title="MHE-CIL's texts")
def on_mhe(context: Context) -> Result:
    rows = []
    for _, data in context.sets(["reuters5"]):
        for counting in ("each topic of a document", "documents of one topic"):
            texts, topics = _instances(data, alone=counting == "documents of one topic")
            work = [
                _TextSplit(texts, topics, context.integer(counting, number))
                for number in range(context.pick(20, 5, 2))
            ]
            told = context.map(_text_split, work, counting)
            for n_topics, printed in PAPER_MHE_BEST.items():
                for measure, paper in printed.items():
                    values = [one[n_topics][measure] for one in told]
                    figures = {"paper": paper, "tolerance": 1.0, "digits": 2}
                    rows.append(
                        Row.of(f"{n_topics} topics, {counting}", "ProximalSVC", measure, values, **figures)
                    )
    return Result(rows, _MHE_NOTES, layout="wide")


_MHE_NOTES = paragraphs(
    """
    The paper's figures are those of MHE-CIL, its best. `ProximalSVC(C=10, standardize=False)` on TF-IDF
    weights learns one topic after the other by `partial_fit`; a new topic needs no row of the old ones, and
    the planes are those of a fit on all of them. A third of the texts is for testing.

    The paper has 896 texts. Counting a document once for each of its topics gives 900 here and is what
    comes nearest, but then a document of two topics (wheat and corn, soybean and corn) stands in the data
    with both labels, and whatever is answered is wrong for one of them: even who knows every document is
    right for 736 of 900, 81.8 %. The paper's figures are at that limit, so its texts were hardly counted
    so. Of documents with one topic there are 607, and there ours are far above the paper's. Which texts the
    paper took is not known; its figure stands beside both.
    """
)


def _instances(data: Dataset, *, alone: bool) -> tuple[NDArray[Any], NDArray[Any]]:
    """Texts and topics: every topic of a document, or only documents with a single one."""
    texts, topics = [], []
    for text, all_topics in zip(data.X, data.y, strict=True):
        own = [topic for topic in all_topics if topic in _TOPICS]
        if not alone or len(own) == 1:
            texts += [text] * len(own)
            topics += own
    return np.array(texts, dtype=object), np.array(topics)


def _text_split(work: _TextSplit) -> dict[int, dict[str, float]]:
    splitter = StratifiedShuffleSplit(1, test_size=1 / 3, random_state=work.seed)
    (train, test) = next(splitter.split(work.texts, work.topics))
    weights = TfidfVectorizer(sublinear_tf=True, min_df=2, max_features=1000)
    X, asked = (
        weights.fit_transform(work.texts[train]).toarray(),
        weights.transform(work.texts[test]).toarray(),
    )
    y, right = work.topics[train], work.topics[test]
    model, known, told = ProximalSVC(C=10.0, standardize=False), 0, {}
    for n_topics in PAPER_MHE_BEST:
        new = np.isin(y, _TOPICS[known:n_topics])
        model.partial_fit(X[new], y[new])
        known, chosen = n_topics, np.isin(right, _TOPICS[:n_topics])
        answers = model.predict(asked[chosen])
        scores = precision_recall_fscore_support(right[chosen], answers, average="macro", zero_division=0)
        told[n_topics] = {
            name: 100.0 * float(score)
            for name, score in zip(("precision", "recall", "F1"), scores[:3], strict=True)
        }
    return told
