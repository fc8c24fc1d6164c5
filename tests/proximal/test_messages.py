"""FoldedStatistics: the messages between learners."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from steelyard import ProximalSVC, RandomFeatures
from steelyard.exceptions import DataError, DataTypeError, FileFormatError, NotFittedError
from steelyard.persistence import from_bytes, to_bytes
from steelyard.persistence.tree import encode
from steelyard.proximal import ClassStatistics, FoldedStatistics
from tests.proximal.data import imbalanced


def sent(message):
    return FoldedStatistics.from_bytes(message.to_bytes())


KINDS = [
    {},
    {"C": "auto"},
    {"track_rows": True},
    {"feature_map": RandomFeatures(20, gamma=0.3)},
    {"feature_map": RandomFeatures(20, gamma=0.3), "C": "auto", "track_rows": True},
]


@pytest.mark.parametrize("options", KINDS)
@pytest.mark.parametrize("with_map", [True, False])
def test_sum_of_messages_equals_a_fit_on_all_rows(rng, options, with_map):
    X, y = imbalanced(rng, 300, 4)
    first = ProximalSVC(**options).fit(X[:200], y[:200])
    second = ProximalSVC(**options, quantizer=first.quantizer_).fit(X[200:], y[200:])
    messages = [sent(m if with_map else m.without_map()) for m in (first.statistics(), second.statistics())]
    total = messages[0] + messages[1]
    whole = ProximalSVC(**options, quantizer=first.quantizer_).fit(X, y)
    pooled = ProximalSVC(**options).merge(total)
    assert total.digest() == pooled.digest() == whole.digest()
    np.testing.assert_array_equal(pooled.decision_function(X), whole.decision_function(X))
    assert (total - messages[1]).digest() == first.digest()
    pooled.subtract(messages[1]).forget(X[:50], y[:50])  # the ledger in the message contains these rows
    assert (
        pooled.digest()
        == ProximalSVC(**options, quantizer=first.quantizer_).fit(X[50:200], y[50:200]).digest()
    )


def test_message_does_not_change_when_a_learner_is_updated_or_merges_it(rng):
    X, y = imbalanced(rng, 100, 4)
    model = ProximalSVC().fit(X, y)
    message, before = model.statistics(), model.digest()
    model.forget(X[:10], y[:10])
    assert message.digest() == before != model.digest()
    ProximalSVC().merge(message).partial_fit(X, y)
    assert message.digest() == before


def test_message_has_number_and_names_of_the_raw_features(rng):
    X, y = imbalanced(rng, 100, 4)
    table = pd.DataFrame(X, columns=list("abcd"))
    for feature_map in (None, RandomFeatures(20, gamma=0.3)):
        message = sent(ProximalSVC(feature_map=feature_map).fit(table, y).statistics().without_map())
        assert message.n_features == 4
        assert list(message.feature_names) == list("abcd")
        fitted = ProximalSVC(feature_map=feature_map).merge(message)
        assert list(fitted.feature_names_in_) == list("abcd")
        with pytest.raises(DataError, match="name their features differently"):
            message + ProximalSVC(feature_map=feature_map).fit(table[list("dcba")], y).statistics()
        with pytest.raises(DataError, match="this one has 4, the other 3"):
            message + ProximalSVC(feature_map=feature_map).fit(X[:, :3], y).statistics()


def test_add_messages_of_different_kinds_raises(rng):
    X, y = imbalanced(rng, 100, 4)
    plain, folded = (ProximalSVC(C=C).fit(X, y).statistics() for C in (1.0, "auto"))
    mapped, other = (
        ProximalSVC(feature_map=RandomFeatures(4, gamma=0.3, random_state=seed)).fit(X, y).statistics()
        for seed in (0, 1)
    )
    assert len({message.kind for message in (plain, folded, mapped, other)}) == 4
    assert mapped.kind == mapped.without_map().kind == sent(mapped.without_map()).kind
    with pytest.raises(DataError, match=r"^FoldedStatistics: one learner keeps fold statistics"):
        plain + folded
    for left, right in [(mapped, other), (mapped.without_map(), other.without_map())]:
        with pytest.raises(DataError, match=r"^FoldedStatistics: .*different feature maps"):
            left + right
        with pytest.raises(DataError, match="different feature maps"):
            left - right
    with pytest.raises(DataError, match="different feature maps"):
        plain + mapped.without_map()  # differs in the number of features of the map
    with pytest.raises(DataTypeError, match="got int"):
        plain + 1


def test_with_map_given_a_different_feature_map_raises(rng):
    X, y = imbalanced(rng, 100, 4)
    own, other = (RandomFeatures(20, gamma=0.3, random_state=seed).fit(X) for seed in (0, 1))
    model = ProximalSVC(feature_map=own).fit(X, y)
    message = sent(model.statistics().without_map())
    assert message.with_map(own).digest() == message.digest() == model.digest()
    for wrong in (other, None):
        with pytest.raises(DataError, match="different feature maps"):
            message.with_map(wrong)
        with pytest.raises(DataError, match="different feature maps"):
            ProximalSVC(feature_map=wrong).merge(message)
    with pytest.raises(DataError, match="must be fitted to rows"):
        ProximalSVC(feature_map=RandomFeatures(20)).merge(message)


def test_subtract_message_with_unknown_rows_raises(rng):
    X, y = imbalanced(rng, 100, 4)
    few, all_rows = (ProximalSVC().fit(X[:n], y[:n]).statistics() for n in (50, 100))
    with pytest.raises(DataError, match="FoldedStatistics"):
        few - all_rows


def test_message_contains_buffered_rows(rng):
    X, y = imbalanced(rng, 200, 4)
    model = ProximalSVC(feature_map=RandomFeatures(20)).partial_fit(X[:150], y[:150])
    there = ProximalSVC(feature_map=RandomFeatures(20)).merge(sent(model.statistics()))
    assert there.digest() == model.digest()
    assert there.partial_fit(X[150:], y[150:]).digest() == model.partial_fit(X[150:], y[150:]).digest()


@pytest.mark.parametrize("options", KINDS)
def test_file_of_a_model_contains_its_message(rng, options):
    X, y = imbalanced(rng, 100, 4)
    model = ProximalSVC(**options).fit(X, y)
    written = FoldedStatistics.from_state(model._get_state())
    assert (
        written.to_bytes()
        == from_bytes(to_bytes(model)).statistics().to_bytes()
        == model.statistics().to_bytes()
    )


def test_messages_of_version_0_1_load(rng):
    X, y = imbalanced(rng, 100, 4)
    for feature_map in (None, RandomFeatures(20, gamma=0.3)):
        model = ProximalSVC(feature_map=feature_map, track_rows=True).fit(X, y)
        state = model.statistics().get_state()
        earlier = {
            "n_features": 4,
            "feature_names": ["a", "b", "c", "d"],
            "statistics": {"map": None, "n_folds": 1, "statistics": state["statistics"]},
            "ledger": state["ledger"],
        }
        message = FoldedStatistics.from_bytes(encode(earlier))
        fitted = ProximalSVC(feature_map=feature_map, track_rows=True).merge(message)
        assert fitted.digest() == model.digest()
        assert list(fitted.feature_names_in_) == ["a", "b", "c", "d"]
    bare = ProximalSVC().fit(X, y).statistics_
    assert FoldedStatistics.from_bytes(bare.to_bytes()).digest() == bare.digest()


def test_from_bytes_of_other_data_raises_file_format_error(rng):
    X, y = imbalanced(rng, 100, 4)
    message = ProximalSVC().fit(X, y).statistics()
    for tree in ([], {}, {"format": "something"}, {"statistics": None}):
        with pytest.raises(FileFormatError):
            FoldedStatistics.from_bytes(encode(tree))
    newer = {"format": "steelyard folded statistics", "version": 2, **message.get_state()}
    with pytest.raises(FileFormatError, match="version 2"):
        FoldedStatistics.from_bytes(encode(newer))
    for change in (
        {"n_folds": 0},
        {"n_folds": 3},
        {"n_features": 3},
        {"statistics": None},
        {"ledger": [1.5]},
    ):
        with pytest.raises(FileFormatError, match="damaged"):
            FoldedStatistics.from_bytes(encode({**newer, "version": 1, **change}))
    foreign = np.frombuffer(to_bytes(ProximalSVC()), dtype=np.uint8)
    with pytest.raises(FileFormatError, match="must be a RandomFeatures"):
        FoldedStatistics.from_bytes(encode({**newer, "version": 1, "map": foreign}))
    with pytest.raises(FileFormatError):
        ClassStatistics.from_bytes(message.to_bytes())


def test_statistics_before_fit_raises():
    with pytest.raises(NotFittedError, match=r"ProximalSVC\.statistics"):
        ProximalSVC().statistics()


def test_cross_validate_uses_the_folds_of_a_message(rng):
    X, y = imbalanced(rng, 300, 4)
    message = sent(ProximalSVC(C="auto").fit(X, y).statistics())
    measured = ProximalSVC(C=0.5).cross_validate(message)
    assert all(len(values) == 5 for values in measured.values())
    with pytest.raises(DataError, match=r"^ProximalSVC.cross_validate: the statistics have one fold"):
        ProximalSVC().cross_validate(ProximalSVC().fit(X, y).statistics())
    two_folds = ProximalSVC(C="auto", n_folds=2).fit(X, y).statistics()
    assert len(ProximalSVC(C=0.5).cross_validate(two_folds)["test_auc"]) == 2
    with pytest.raises(DataError, match=r"^ProximalSVC.cross_validate: the statistics have two folds"):
        ProximalSVC(C="auto").cross_validate(two_folds)


def test_merge_of_difference_without_map_with_unknown_rows_raises_and_keeps_state(rng):
    X, y = imbalanced(rng, 300, 4)
    feature_map = RandomFeatures(20, gamma=0.3, random_state=0).fit(X)
    master, new, unknown = (
        ProximalSVC(feature_map=feature_map).fit(*rows)
        for rows in ((X, y), (np.zeros((200, 4)), y[:200]), (3.0 * X[:40], y[:40]))
    )
    difference = new.statistics().difference(unknown.statistics()).without_map()
    before = master.digest()
    with pytest.raises(DataError, match="forgotten"):
        master.merge(sent(difference))
    assert master.digest() == before
