"""The learner contract as a runnable suite.

Whoever writes a learner of their own calls :func:`check_learner` on it; the package runs the same checks
over every learner that it has. A check that does not apply says so, with a reason.

Examples
--------
>>> from steelyard import ProximalSVC
>>> from steelyard.checks import check_learner
>>> results = check_learner(ProximalSVC(), sklearn=False)
>>> {result.status for result in results} <= {"passed", "not applicable"}
True
"""

from __future__ import annotations

import copy
import os
import pickle
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

from steelyard import persistence
from steelyard._types import FloatArray
from steelyard.base import BatchLearner, ForgettingMixin, Learner, MergingMixin
from steelyard.exceptions import SteelyardError

__all__ = ["CheckResult", "NotApplicable", "check_learner", "learner_checks"]

Check = Callable[[BatchLearner], None]


class NotApplicable(Exception):  # noqa: N818 - not an error: it carries the reason why a check says nothing
    """Raised by a check that does not apply to a learner."""


@dataclass(frozen=True)
class CheckResult:
    """Outcome of one check: "passed", "failed" or "not applicable", and why."""

    name: str
    status: str
    reason: str = ""


def learner_checks(learner: BatchLearner) -> Iterator[tuple[str, Check]]:
    """Names and functions of all checks of the contract.

    Each function takes a learner, which it clones, and raises AssertionError when the contract is broken
    or :class:`NotApplicable` with a reason.
    """
    for check in _CHECKS:
        name = check.__name__.removeprefix("check_")
        reason = dict(learner._traits.exempt).get(name)
        if check in _OF_STREAMS and not isinstance(learner, Learner):
            reason = "this learner does not stream"
        yield name, check if reason is None else _exempted(reason)


def _exempted(reason: str) -> Check:
    def say(_: BatchLearner) -> None:
        raise NotApplicable(reason)

    return say


def check_learner(learner: BatchLearner, *, sklearn: bool = True) -> list[CheckResult]:
    """Run the contract on a learner.

    Parameters
    ----------
    learner : BatchLearner
        The learner to check; it is cloned and stays as it is.
    sklearn : bool, default=True
        Whether to run scikit-learn's own estimator checks as well.

    Returns
    -------
    list of CheckResult

    Raises
    ------
    AssertionError
        If any check failed; the message lists them all.
    """
    results = []
    for name, check in learner_checks(learner):
        try:
            check(learner)
        except NotApplicable as reason:
            results.append(CheckResult(name, "not applicable", str(reason)))
        except AssertionError as failure:
            results.append(CheckResult(name, "failed", str(failure)))
        else:
            results.append(CheckResult(name, "passed"))
    if sklearn:
        outcomes = check_estimator(clone(learner), on_fail=None, on_skip=None)
        results += [
            CheckResult(
                f"sklearn:{outcome['check_name']}",
                {"passed": "passed", "failed": "failed"}.get(outcome["status"], "not applicable"),
                str(outcome["exception"] or ""),
            )
            for outcome in outcomes
        ]
    failed = [f"{result.name}: {result.reason}" for result in results if result.status == "failed"]
    if failed:
        raise AssertionError(f"{type(learner).__name__} breaks the contract:\n" + "\n".join(failed))
    return results


# -- data and helpers -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Stream:
    X: FloatArray
    y: NDArray[Any]

    def rows(self, begin: int, end: int | None = None) -> tuple[FloatArray, NDArray[Any]]:
        return self.X[begin:end], self.y[begin:end]


def _stream(seed: int = 0, n_rows: int = 240, n_classes: int = 2, rare: float = 0.15) -> _Stream:
    """Overlapping classes, the later ones rare, the first two present from the start."""
    rng = np.random.default_rng(seed)
    shares = np.array([1.0, *([rare] * (n_classes - 1))])
    y = rng.choice(n_classes, size=n_rows, p=shares / shares.sum())
    y[: 2 * n_classes] = np.arange(2 * n_classes) % n_classes
    centers = rng.normal(size=(n_classes, 4))
    return _Stream(rng.normal(size=(n_rows, 4)) + 1.5 * centers[y], y)


def _feed(learner: BatchLearner, stream: _Stream, cuts: list[int]) -> BatchLearner:
    model = clone(learner)
    for begin, end in zip([0, *cuts], [*cuts, len(stream.y)], strict=True):
        if begin < end:
            model.partial_fit(*stream.rows(begin, end))
    return model


def _same_answers(a: BatchLearner, b: BatchLearner, X: FloatArray, *, exact: bool, what: str) -> None:
    """Decision functions agree: bit for bit, or up to rounding for exact learners."""
    left, right = np.asarray(a.decision_function(X)), np.asarray(b.decision_function(X))
    assert left.shape == right.shape, (
        f"{what}: the decision functions have shapes {left.shape} and {right.shape}"
    )
    if exact:
        scale = float(np.abs(right).max(initial=1e-300))
        difference = float(np.abs(left - right).max(initial=0.0)) / scale
        assert difference < 1e-6, f"{what}: decision functions differ by {difference:.1e} of their size"
    else:
        assert np.array_equal(left, right), f"{what}: decision functions are not identical"


def _learn_more(model: BatchLearner, X: Any, y: Any) -> None:
    if isinstance(model, Learner):
        model.partial_fit(X, y)


def _teach(model: BatchLearner, X: Any, y: Any) -> None:
    """Learn these rows too, or instead where the learner does not stream."""
    (model.partial_fit if hasattr(model, "partial_fit") else model.fit)(X, y)


def _pickled(model: BatchLearner) -> BatchLearner:
    try:
        twin: BatchLearner = pickle.loads(pickle.dumps(model))  # noqa: S301 - of our own making
    except pickle.PicklingError:  # a class that was made in a notebook or a test, and has no module
        return _saved(model)
    return twin


def _saved(model: BatchLearner) -> BatchLearner:
    twin: BatchLearner = persistence.from_bytes(_bytes(model))
    return twin


def _bytes(model: BatchLearner) -> bytes:
    return persistence.to_bytes(model)


def _need(condition: bool, reason: str) -> None:
    if not condition:
        raise NotApplicable(reason)


def _raises_and_keeps(model: BatchLearner, call: Callable[[], object], what: str) -> None:
    before = _bytes(model)
    try:
        call()
    except (SteelyardError, ValueError, TypeError) as error:
        assert len(str(error)) > 15, f"{what}: the error says too little: {error!r}"
    else:
        raise AssertionError(f"{what}: no error was raised")
    assert _bytes(model) == before, f"{what}: the learner was changed by a call that raised"


# -- the checks -------------------------------------------------------------------------------------


def check_inputs_unchanged(learner: BatchLearner) -> None:
    """Rows, labels and weights that are passed stay as they were."""
    stream = _stream()
    X, y = stream.X.copy(), stream.y.copy()
    X.setflags(write=False)
    y.setflags(write=False)
    model = clone(learner).fit(X, y)
    _learn_more(model, X[:10], y[:10])
    model.predict(X)
    if isinstance(model, ForgettingMixin):
        model.forget(X[:10], y[:10])
    assert np.array_equal(X, stream.X)
    assert np.array_equal(y, stream.y)


def check_chunk_borders_do_not_matter(learner: BatchLearner) -> None:
    """The same rows in the same order give the same model however they are cut."""
    stream = _stream(1)
    whole = _feed(learner, stream, [])
    for cuts in ([120], [1, 2, 3, 100], list(range(1, 240, 7))):
        cut = _feed(learner, stream, cuts)
        _same_answers(cut, whole, stream.X, exact=learner._traits.exact, what=f"cut at {cuts[:4]}")


def check_fit_equals_partial_fit(learner: BatchLearner) -> None:
    """fit() forgets what was before and then learns like one partial_fit()."""
    stream = _stream(2)
    once = clone(learner).partial_fit(stream.X, stream.y)
    again = clone(learner).fit(*_stream(3, n_classes=3).rows(0)).fit(stream.X, stream.y)
    _same_answers(again, once, stream.X, exact=False, what="fit after another fit")


def check_order_does_not_matter(learner: BatchLearner) -> None:
    """Exact learners give the same model for any order of the rows."""
    _need(learner._traits.exact, "this learner takes rows in their order, by design")
    stream = _stream(4)
    order = np.random.default_rng(0).permutation(len(stream.y))
    shuffled = _Stream(stream.X[order], stream.y[order])
    # The first call may settle things (a kernel width, a feature map), so both see all rows in it.
    _same_answers(
        clone(learner).fit(*shuffled.rows(0)),
        clone(learner).fit(*stream.rows(0)),
        stream.X,
        exact=True,
        what="shuffled",
    )


def check_late_class(learner: BatchLearner) -> None:
    """A label never seen before simply becomes a class."""
    stream = _stream(5)
    rng = np.random.default_rng(0)
    model = clone(learner).partial_fit(stream.X, stream.y)
    assert list(model.classes_) == [0, 1]
    model.partial_fit(rng.normal(size=(30, 4)) + 8.0, np.full(30, 7))
    assert list(model.classes_) == [0, 1, 7], f"classes_ is {model.classes_!r} after label 7 came"
    scores = model.decision_function(stream.X)
    assert scores.shape == (len(stream.y), 3)
    assert 7 in model.predict(rng.normal(size=(20, 4)) + 8.0), "rows of the late class are never recognised"


def check_long_run_of_one_class(learner: BatchLearner) -> None:
    """Many rows of one class first, then the other: no crash, and both classes are known."""
    rng = np.random.default_rng(6)
    model = clone(learner)
    for _ in range(10):
        model.partial_fit(rng.normal(size=(50, 4)), np.zeros(50, dtype=int))
    assert (model.predict(rng.normal(size=(5, 4))) == 0).all()
    model.partial_fit(rng.normal(size=(20, 4)) + 4.0, np.ones(20, dtype=int))
    assert list(model.classes_) == [0, 1]
    assert np.isfinite(model.decision_function(rng.normal(size=(5, 4)))).all()


def check_labels_of_any_type(learner: BatchLearner) -> None:
    """Strings, booleans, floats and integers all serve as labels and come back as they are."""
    stream = _stream(7)
    reference = clone(learner).fit(stream.X, stream.y).predict(stream.X)
    for names in (
        np.array(["ok", "rare"]),
        np.array([False, True]),
        np.array([-1.0, 1.0]),
        np.array([10, 200]),
    ):
        model = clone(learner).fit(stream.X, names[stream.y])
        assert np.array_equal(model.classes_, names)
        assert np.array_equal(model.predict(stream.X), names[reference]), (
            f"labels {names!r} change the answers"
        )


def check_save_load_go_on(learner: BatchLearner) -> None:
    """Stop, save, load and go on equals never stopping, bit for bit."""
    stream = _stream(8)
    never_stopped = clone(learner).fit(*stream.rows(0, 100))
    stopped = persistence.from_bytes(_bytes(never_stopped))
    assert np.array_equal(stopped.decision_function(stream.X), never_stopped.decision_function(stream.X))
    for model in (never_stopped, stopped):
        _learn_more(model, *stream.rows(100))
    _same_answers(stopped, never_stopped, stream.X, exact=False, what="after loading")
    assert _bytes(stopped) == _bytes(never_stopped), "the states differ after loading and going on"


def check_copies_go_their_own_way(learner: BatchLearner) -> None:
    """Learn, ask, copy, learn, ask: a copy answers from what it has learned itself, as does the original."""
    stream = _stream(19)
    other = _Stream(9.0 * stream.X, np.where(stream.y == 1, 7, stream.y))  # other rows and a new class
    never_copied = clone(learner).fit(*stream.rows(0, 100))
    before = never_copied.decision_function(stream.X)
    for make in (copy.deepcopy, copy.copy, _pickled, _saved):
        model = clone(learner).fit(*stream.rows(0, 100))
        model.decision_function(stream.X)
        model.predict(stream.X)
        twin = make(model)
        _teach(twin, *other.rows(100))
        twin.predict(stream.X)  # nothing that is remembered may be of the time before
        expected = persistence.from_bytes(_bytes(never_copied))
        _teach(expected, *other.rows(100))
        _same_answers(twin, expected, stream.X, exact=learner._traits.exact, what="a copy that went on")
        assert np.array_equal(twin.classes_, expected.classes_)
        assert np.array_equal(twin.predict(stream.X), expected.predict(stream.X))
        assert np.array_equal(model.decision_function(stream.X), before), "the copy changed the original"


def check_answers_belong_to_one_state(learner: BatchLearner) -> None:
    """While one thread learns, another is only ever given answers of a state before or after a call."""
    stream = _stream(20)
    model = clone(learner).fit(*stream.rows(0, 60))
    streams = isinstance(learner, Learner)
    lessons = [stream.rows(k if streams else 0, k + 10) for k in range(60, 100, 10)]
    expected = clone(learner).fit(*stream.rows(0, 60))
    states = {_answers(expected, stream.X)}
    for lesson in lessons:
        _teach(expected, *lesson)
        states.add(_answers(expected, stream.X))
    wrong: list[str] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            try:
                if _answers(model, stream.X) not in states:
                    wrong.append("an answer of no state")
            except Exception as error:  # noqa: BLE001 - a question that can be answered must be
                wrong.append(repr(error))

    asking = threading.Thread(target=ask)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # threads take turns more often than they otherwise would
    asking.start()
    try:
        for _ in range(3):
            for lesson in lessons:
                _teach(model, *lesson)
            model.fit(*stream.rows(0, 60))
    finally:
        stop.set()
        asking.join()
        sys.setswitchinterval(before)
    assert not wrong, f"asked while another thread learned: {wrong[0]}"


def check_interrupted_calls_change_all_or_nothing(learner: BatchLearner) -> None:
    """An exception from a signal handler, at any of some moments, leaves a learner before or after a call."""
    stream = _stream(21)
    taught = clone(learner).fit(*stream.rows(0, 60))
    lesson = stream.rows(60 if isinstance(learner, Learner) else 0, 64)
    done = copy.deepcopy(taught)
    _teach(done, *lesson)
    states = {_answers(taught, stream.X), _answers(done, stream.X)}
    moment = 0
    while True:
        model = copy.deepcopy(taught)
        model.decision_function(stream.X)
        if not _interrupted(partial(_teach, model, *lesson), moment):
            return
        assert _answers(model, stream.X) in states, f"interrupted at moment {moment}, it is in between"
        moment += 1 + moment // 4  # all of the first ones, then fewer and fewer


def _interrupted(call: Callable[[], None], moment: int) -> bool:
    """Whether a call was interrupted at a moment where a handler could run, or had ended before."""
    left = moment

    def profiler(_frame: object, event: str, _argument: object) -> None:
        nonlocal left
        if event in {"call", "c_return"}:
            left -= 1
            if left < 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None  # generators that are put away
    try:
        sys.setprofile(profiler)
        call()
    except BaseException:
        if left >= 0:
            raise
    finally:
        sys.setprofile(None)
        sys.unraisablehook = hook
    return left < 0


def _answers(model: BatchLearner, X: FloatArray) -> bytes:
    return bytes(np.asarray(model.decision_function(X)).tobytes())


def check_unfitted_save_load(learner: BatchLearner) -> None:
    """A learner that has seen nothing can be saved too."""
    twin = persistence.from_bytes(_bytes(clone(learner)))
    stream = _stream(9)
    _same_answers(
        twin.fit(stream.X, stream.y),
        clone(learner).fit(stream.X, stream.y),
        stream.X,
        exact=False,
        what="loaded unfitted",
    )


def check_forget_equals_never_learned(learner: BatchLearner) -> None:
    """Rows that were learned and forgotten leave nothing behind."""
    _need(isinstance(learner, ForgettingMixin), "this learner does not forget rows")
    stream = _stream(10)
    kept = clone(learner).partial_fit(*stream.rows(0, 120))
    model = clone(learner).partial_fit(*stream.rows(0, 120)).partial_fit(*stream.rows(120))
    model.forget(*stream.rows(120))
    _same_answers(model, kept, stream.X, exact=True, what="learned and forgotten")
    both = clone(learner).partial_fit(*stream.rows(0, 120))
    both.update(add=stream.rows(120), retire=stream.rows(0, 60))
    expected = clone(learner).partial_fit(*stream.rows(0, 120)).partial_fit(*stream.rows(120))
    expected.forget(*stream.rows(0, 60))
    _same_answers(both, expected, stream.X, exact=True, what="update")


def check_forgotten_class_disappears(learner: BatchLearner) -> None:
    """A class all of whose rows are forgotten is no class any more."""
    _need(isinstance(learner, ForgettingMixin), "this learner does not forget rows")
    stream = _stream(11, n_classes=3)
    last = stream.y == 2
    model = (
        clone(learner)
        .partial_fit(stream.X[~last], stream.y[~last])
        .partial_fit(stream.X[last], stream.y[last])
    )
    model.forget(stream.X[last], stream.y[last])
    assert list(model.classes_) == [0, 1]
    kept = clone(learner).partial_fit(stream.X[~last], stream.y[~last])
    _same_answers(model, kept, stream.X, exact=True, what="class forgotten")


def check_merge_equals_learning_together(learner: BatchLearner) -> None:
    """Merging learners equals learning all rows in one, in any order, and leaves the other as it was."""
    _need(isinstance(learner, MergingMixin), "this learner does not merge")
    stream = _stream(12, n_classes=3)
    together, parts = clone(learner).fit(stream.X, stream.y), []
    for label in range(3):  # disjoint classes: what every merging learner can merge
        mine = stream.y == label
        parts.append(clone(learner).partial_fit(stream.X[mine], stream.y[mine]))
    for order in ([0, 1, 2], [2, 0, 1]):
        before = [_bytes(part) for part in parts]
        merged = persistence.from_bytes(before[order[0]])
        for index in order[1:]:
            merged.merge(parts[index])
        _same_answers(merged, together, stream.X, exact=True, what=f"merged in order {order}")
        assert [_bytes(part) for part in parts] == before, "merging changed the other learner"


def check_errors_change_nothing(learner: BatchLearner) -> None:
    """A call that raises leaves the learner bit-identical."""
    stream = _stream(13)
    model = clone(learner).fit(stream.X, stream.y)
    learning = [getattr(model, name) for name in ("fit", "partial_fit") if hasattr(model, name)]
    bad = stream.X.copy()
    bad[-1, -1] = np.nan
    infinite = stream.X.copy()
    infinite[7, 2] = np.inf
    wide = np.column_stack([stream.X, stream.X[:, 0]])
    for X, what in ((bad, "NaN in the last row"), (infinite, "infinity"), (stream.X[:5], "too few rows")):
        for call in learning:
            _raises_and_keeps(model, partial(call, X, stream.y), f"{call.__name__} with {what}")
    if isinstance(model, Learner):
        _raises_and_keeps(model, lambda: model.partial_fit(wide, stream.y), "partial_fit of wrong width")
    _raises_and_keeps(model, lambda: model.predict(wide), "predict of wrong width")
    _raises_and_keeps(model, lambda: model.predict(bad), "predict with NaN")
    fresh = clone(learner)
    first = fresh.partial_fit if isinstance(fresh, Learner) else fresh.fit
    _raises_and_keeps(fresh, lambda: first(bad, stream.y), "first call with NaN")
    assert not hasattr(fresh, "n_features_in_"), "a failed first call leaves n_features_in_ behind"


def check_refuses_to_forget_strangers(learner: BatchLearner) -> None:
    """Rows that were never learned cannot be forgotten, where that can be known; nothing changes."""
    _need(isinstance(learner, ForgettingMixin), "this learner does not forget rows")
    assert isinstance(learner, ForgettingMixin)
    stream = _stream(14)
    model = clone(learner).partial_fit(stream.X, stream.y)
    far = np.full((1, 4), 1e3)
    _raises_and_keeps(model, lambda: model.forget(far, np.array([0])), "a row far from all")
    _raises_and_keeps(model, lambda: model.forget(stream.X[:1], np.array([5])), "a class never seen")
    rare = stream.X[stream.y == 1]
    twice = np.concatenate([rare, rare[:1]])
    _raises_and_keeps(
        model, lambda: model.forget(twice, np.ones(len(twice), dtype=int)), "more rows than learned"
    )
    _raises_and_keeps(
        model,
        lambda: model.update(add=(stream.X, stream.y), retire=(far, np.array([0]))),
        "update with a stranger",
    )


def check_sklearn_clone_forgets(learner: BatchLearner) -> None:
    """clone() gives a learner that has learned nothing, with the same parameters."""
    stream = _stream(15)
    model = clone(learner).fit(stream.X, stream.y)
    twin = clone(model)
    assert not hasattr(twin, "classes_")
    assert repr(twin) == repr(clone(learner))


def check_memory_stays_bounded(learner: BatchLearner) -> None:
    """The saved state stops growing however many rows come."""
    _need(learner._traits.bounded_memory, "this learner keeps rows, so its memory grows with them")
    rng = np.random.default_rng(16)
    model = clone(learner)
    sizes = []
    for rows in (1000, 1000, 3000):
        y = (rng.random(rows) < 0.3).astype(int)
        model.partial_fit(rng.normal(size=(rows, 4)) + y[:, None], y)
        sizes.append(len(_bytes(model)))
    assert sizes[2] <= 1.5 * sizes[0], f"the state grew from {sizes[0]} to {sizes[2]} bytes"


def check_same_on_any_number_of_threads(learner: BatchLearner) -> None:
    """Same seed and data give the same bits on one thread and on two."""
    stream = _stream(17, n_rows=600)
    answers, before = [], os.environ.get("STEELYARD_NUM_THREADS")
    try:
        for threads in ("1", "2"):
            os.environ["STEELYARD_NUM_THREADS"] = threads
            answers.append(clone(learner).fit(stream.X, stream.y).decision_function(stream.X))
    finally:
        if before is None:
            del os.environ["STEELYARD_NUM_THREADS"]
        else:
            os.environ["STEELYARD_NUM_THREADS"] = before
    assert np.array_equal(*answers), "one and two threads give different answers"


def check_tables(learner: BatchLearner) -> None:
    """Data frames are taken with their names, which are remembered and checked."""
    try:
        import pandas as pd
    except ImportError:
        raise NotApplicable("pandas is not installed") from None
    stream = _stream(18)
    frame = pd.DataFrame(stream.X, columns=list("abcd"))
    model = clone(learner).fit(frame, stream.y)
    plain = clone(learner).fit(stream.X, stream.y)
    assert list(model.feature_names_in_) == list("abcd")
    assert np.array_equal(model.decision_function(frame), plain.decision_function(stream.X))
    swapped = frame[list("bacd")]
    _raises_and_keeps(model, lambda: model.predict(swapped), "columns in another order")
    if isinstance(model, Learner):
        _raises_and_keeps(model, lambda: model.partial_fit(swapped, stream.y), "columns in another order")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns that the names are missing here
        _learn_more(model, stream.X, stream.y)


_CHECKS: tuple[Check, ...] = (
    check_inputs_unchanged,
    check_chunk_borders_do_not_matter,
    check_fit_equals_partial_fit,
    check_order_does_not_matter,
    check_late_class,
    check_long_run_of_one_class,
    check_labels_of_any_type,
    check_save_load_go_on,
    check_copies_go_their_own_way,
    check_answers_belong_to_one_state,
    check_interrupted_calls_change_all_or_nothing,
    check_unfitted_save_load,
    check_forget_equals_never_learned,
    check_forgotten_class_disappears,
    check_merge_equals_learning_together,
    check_errors_change_nothing,
    check_refuses_to_forget_strangers,
    check_sklearn_clone_forgets,
    check_memory_stays_bounded,
    check_same_on_any_number_of_threads,
    check_tables,
)

# What has no meaning for a learner that needs all rows at once.
_OF_STREAMS = frozenset(
    {
        check_chunk_borders_do_not_matter,
        check_fit_equals_partial_fit,
        check_late_class,
        check_long_run_of_one_class,
        check_memory_stays_bounded,
    }
)
