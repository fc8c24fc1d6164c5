"""Parameter values have the same meaning in every learner."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

import steelyard
import steelyard.kernels
import steelyard.online
import steelyard.tables
import steelyard.windowing
from steelyard import AlignedSVC, EnclosingClassifier, IncrementalSVC, ProximalSVC, RandomFeatures
from steelyard._validation import MAX_FEATURE
from steelyard.exceptions import DataError, ParameterError
from steelyard.kernels import Kernel
from steelyard.online import AROW, KOIL, NORMA, OAM, OPAUC, RBP, Forgetron, OnlinePerceptron, Projectron
from steelyard.persistence import from_bytes, to_bytes

STREAMING = [KOIL, NORMA, RBP, Forgetron, Projectron]
WEIGHTED = [ProximalSVC, IncrementalSVC, AlignedSVC]


@pytest.fixture
def rows(rng):
    y = (np.arange(120) % 4 == 0).astype(int)
    return rng.normal(size=(120, 3)) + 1.5 * y[:, None], y


def used_gamma(model):
    if isinstance(model, EnclosingClassifier):
        return [body.center.kernel.gamma for body in model._bodies("predict")]
    if isinstance(model, IncrementalSVC):
        return model._state.kernel.gamma
    kernel = model._kernel if isinstance(model, AlignedSVC) else model._kernels[0]
    return kernel.gamma


@pytest.mark.parametrize(
    ("learner", "rule"),
    [(learner, rule) for learner in (IncrementalSVC, AlignedSVC) for rule in ("scale", "auto", "median")]
    + [(learner, rule) for learner in STREAMING for rule in ("scale", "median")],
)
def test_gamma_rule_gives_same_gamma_in_every_learner(learner, rule, rows):
    X, y = rows
    model = learner(kernel="rbf", gamma=rule).fit(X, y)
    assert used_gamma(model) == Kernel("rbf", gamma=rule).resolve(X).gamma


@pytest.mark.parametrize("rule", ["scale", "auto", "median"])
def test_enclosing_classifier_applies_gamma_rule_per_class(rule, rows):
    X, y = rows
    model = EnclosingClassifier(kernel="rbf", gamma=rule, shape="sphere").fit(X, y)
    kernels = [Kernel("rbf", gamma=rule).resolve(X[y == label]) for label in (0, 1)]
    assert used_gamma(model) == pytest.approx([kernel.gamma for kernel in kernels])


@pytest.mark.parametrize("learner", STREAMING)
def test_former_gamma_auto_in_online_learners_raises_with_hint(learner, rows):
    with pytest.raises(ParameterError, match="write gamma='median' to keep the former behaviour"):
        learner(gamma="auto").partial_fit(*rows)


def test_former_gamma_auto_in_random_features_raises_with_hint(rows):
    with pytest.raises(ParameterError, match="write gamma='rows'"):
        RandomFeatures(10, gamma="auto").fit(rows[0])


@pytest.mark.parametrize("learner", STREAMING)
def test_file_with_former_gamma_auto_loads_with_same_meaning(learner, rows):
    X, y = rows
    model = learner(gamma="median", **({"random_state": 0} if learner in {KOIL, RBP} else {})).fit(X, y)
    model.gamma = "auto"
    loaded = from_bytes(to_bytes(model))
    assert loaded.gamma == "median"
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
    loaded.partial_fit(X, y)


def test_feature_map_file_with_former_gamma_auto_loads_with_same_meaning(rows):
    features = RandomFeatures(10).fit(rows[0])
    features.gamma = "auto"
    loaded = from_bytes(to_bytes(features))
    assert loaded.gamma == "rows"
    np.testing.assert_array_equal(loaded.transform(rows[0]), features.transform(rows[0]))


@pytest.mark.parametrize("learner", WEIGHTED)
@pytest.mark.parametrize("factor", [-1.0, np.nan, np.inf, "much"])
def test_invalid_class_weight_raises(learner, factor, rows):
    with pytest.raises(ParameterError, match="finite numbers of at least 0"):
        learner(class_weight={0: factor}).fit(*rows)


@pytest.mark.parametrize("learner", WEIGHTED)
def test_class_weight_zero_ignores_rows_of_class(learner, rng):
    y = np.arange(150) % 3
    X = rng.normal(size=(150, 2)) + 3.0 * np.eye(3, 2)[y]
    options = {"standardize": False} if learner is ProximalSVC else {"gamma": 0.5}
    silenced = learner(class_weight={2: 0}, **options).fit(X, y)
    unweighted = learner(class_weight=None, **options).fit(X, y, sample_weight=(y != 2).astype(float))
    np.testing.assert_allclose(silenced.decision_function(X)[:, :2], _scores_of_two(unweighted, X), atol=1e-6)
    assert not (silenced.predict(X) == 2).any()


def _scores_of_two(model, X):
    scores = model.decision_function(X)
    return np.column_stack([-scores, scores]) if scores.ndim == 1 else scores[:, :2]


@pytest.mark.parametrize(
    "learner",
    [AROW, EnclosingClassifier, OAM, OPAUC, OnlinePerceptron],
    ids=lambda kind: kind.__name__,
)
def test_features_beyond_limit_raise_in_every_learner(learner, rows):
    X, y = rows
    if learner is not OPAUC:  # its steps assume features of moderate size
        learner().fit(X * (0.1 * MAX_FEATURE / np.abs(X).max()), y)
    with pytest.raises(DataError, match=r"beyond 1e\+75"):
        learner().fit(X * (1.1 * MAX_FEATURE / np.abs(X).max()), y)


@pytest.mark.parametrize("learner", [IncrementalSVC, AlignedSVC, *STREAMING], ids=lambda kind: kind.__name__)
def test_kernel_values_beyond_limit_raise_in_every_learner(learner, rows):
    X, y = rows
    with pytest.raises(DataError, match=r"overflow|beyond"):
        learner(kernel="linear").fit(X * 1e51, y)


# -- constructors -----------------------------------------------------------------------------------

MODULES = (steelyard, steelyard.online, steelyard.windowing, steelyard.kernels, steelyard.tables)


def public_learners():
    modules = (steelyard, steelyard.online, steelyard.windowing)
    named = [getattr(module, name) for module in modules for name in module.__all__]
    return {each for each in named if inspect.isclass(each) and hasattr(each, "_constraints")}


def public_estimators():
    named = {getattr(module, name) for module in MODULES for name in module.__all__}
    return sorted(
        (each for each in named if inspect.isclass(each) and hasattr(each, "set_params")),
        key=lambda each: each.__name__,
    )


def parameters_of(estimator):
    return inspect.signature(estimator).parameters


@pytest.mark.parametrize("estimator", public_estimators(), ids=lambda kind: kind.__name__)
def test_every_constructor_parameter_survives_clone(estimator):
    values = {name: f"value of {name}" for name in parameters_of(estimator)}
    copied = clone(estimator(**values))
    assert copied.get_params(deep=False) == values
    assert vars(copied).keys() >= values.keys()


@pytest.mark.parametrize("estimator", public_estimators(), ids=lambda kind: kind.__name__)
def test_inner_model_of_wrapper_is_called_estimator(estimator):
    assert not parameters_of(estimator).keys() & {"learner", "classifier", "model", "base_estimator"}


@pytest.mark.parametrize("learner", sorted(public_learners(), key=str), ids=lambda kind: kind.__name__)
def test_methods_that_change_a_learner_return_it(learner):
    changing = ("fit", "partial_fit", "forget", "update", "merge", "subtract", "decay", "grow")
    methods = [getattr(learner, name, None) for name in changing]
    answers = {m.__name__: inspect.signature(m).return_annotation for m in methods if inspect.isroutine(m)}
    assert answers.keys() >= {"fit"}
    assert set(answers.values()) == {"Self"}


@pytest.mark.parametrize(
    ("name", "default", "others"),
    [
        ("class_weight", None, {"ProximalSVC": "balanced"}),
        ("random_state", None, {"RandomFeatures": 0, "StreamClassifier": 0}),
    ],
)
def test_defaults_are_the_same_except_those_explained_on_the_page(name, default, others):
    defaults = {
        estimator.__name__: parameters_of(estimator)[name].default
        for estimator in public_estimators()
        if name in parameters_of(estimator)
    }
    assert len(defaults) > len(others) + 1
    found = {owner: value for owner, value in defaults.items() if value != default}
    assert found == others, (
        f"the default of {name} is {default!r}; an exception is listed in this test and in docs/parameters.md"
    )
    text = PAGE.read_text(encoding="utf-8")
    assert all(re.search(rf"`{owner}`[^.|]*default|default of[^.|]*`{owner}`", text) for owner in others)


# -- the page that lists them -----------------------------------------------------------------------

PAGE = Path(__file__).parents[1] / "docs" / "parameters.md"


def words_accepted():
    """Return parameter, value and learner from the constraints of the learners."""
    found = set()
    for learner in public_learners():
        for parameter, constraint in learner._constraints.items():
            if parameter == "variant":  # the page does not list variants of papers
                continue
            said = constraint.description
            words = re.findall(r"[\"']([a-z0-9+]+)[\"'](?!:)", re.sub(r"\{.*?\}|such as \"30d\"", "", said))
            words += ["None"] if re.search(r"\bNone\b", said) else []
            found |= {(parameter, word, learner.__name__) for word in words}
    return found


def words_listed():
    """Return parameter, value and learner from the last table of the page."""
    text = PAGE.read_text(encoding="utf-8").split("## All string values", 1)[1]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if "|" in line
    ]
    return {
        (parameter.strip("`"), word.strip('"'), learner)
        for parameter, value, meaning, learners in rows[2:]
        for word in re.findall(r"`([^`]+)`", value)
        for learner in re.findall(r"`(\w+)`", learners)
        if meaning
    }


def test_parameter_page_lists_exactly_the_accepted_names():
    missing, extra = sorted(words_accepted() - words_listed()), sorted(words_listed() - words_accepted())
    assert not missing, f"add to a table in docs/parameters.md (parameter, value, learner): {missing}"
    assert not extra, f"remove from the tables in docs/parameters.md (parameter, value, learner): {extra}"
