"""Sites and hub: the pooled model equals a fit on all rows for any order of messages."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard import ProximalSVC
from steelyard.exceptions import DataError, FileFormatError
from steelyard.federated import Folder, Hub, Site, SiteUpdate
from steelyard.federated.site import quantized
from tests.federated.data import OPEN, table

STEPS = (
    3e-9  # sites quantize with at least 2**25 steps per typical deviation, an estimator with at least 2**33
)


def pooled_scores(frames, probe):
    """Return the scores of one estimator fitted on all rows with one-hot columns."""
    rows = pd.concat(frames, ignore_index=True)
    names = sorted(rows["country"].unique())

    def features(frame):
        hot = np.array([[float(value == name) for name in names] for value in frame["country"]])
        return np.column_stack([frame["age"], frame["pressure"], hot.reshape(len(frame), len(names))])

    model = ProximalSVC().fit(features(rows), rows["ill"].to_numpy())
    return model.decision_function(features(probe))


def hub_scores(hub, probe):
    scores = [answers.scores[:, 1] for _, answers in hub.model().predictions(probe.drop(columns="ill"))]
    return np.concatenate(scores)


def open_site(name, frame):
    site = Site(name, "ill", policy=OPEN)
    site.learn(frame)
    return site


def test_hub_with_one_update_per_site_equals_fit_on_all_rows():
    frames = [table(80, 0), table(50, 1, ("FR", "NZ")), table(30, 2, ("AU",))]
    hub = Hub()
    for number, frame in enumerate(frames):
        assert hub.receive(open_site(f"s{number}", frame).publish().to_bytes())
    probe = table(40, 9, ("DE", "FR", "NZ", "AU"))
    np.testing.assert_allclose(hub_scores(hub, probe), pooled_scores(frames, probe), rtol=0, atol=STEPS)


def test_receive_newer_update_replaces_older_and_rejects_late_one():
    site = open_site("a", table(60, 0))
    first = site.publish()
    site.learn(table(40, 1))
    second = site.publish()
    hub = Hub()
    assert hub.receive(second)
    assert not hub.receive(first), "late"
    assert not hub.receive(second), "twice"
    assert hub.statistics.n_rows == 100


def test_hub_after_site_forgets_equals_fit_without_forgotten_rows():
    kept, forgotten = table(60, 0), table(25, 1)
    site = open_site("a", pd.concat([kept, forgotten], ignore_index=True))
    hub = Hub()
    hub.receive(site.publish())
    site.forget(forgotten)
    hub.receive(site.publish())
    probe = table(30, 5)
    np.testing.assert_allclose(hub_scores(hub, probe), pooled_scores([kept], probe), rtol=0, atol=STEPS)


def test_pooled_model_after_drop_site_equals_fit_without_site():
    frames = {"a": table(60, 0), "b": table(50, 1, ("NZ",)), "c": table(40, 2)}
    hub = Hub()
    for name, frame in frames.items():
        hub.receive(open_site(name, frame).publish())
    late = open_site("b", frames["b"]).publish()
    hub.drop("b")
    probe = table(30, 5)
    np.testing.assert_allclose(
        hub_scores(hub, probe), pooled_scores([frames["a"], frames["c"]], probe), rtol=0, atol=STEPS
    )
    assert hub.receive(late), "an update of a new epoch is accepted"
    with pytest.raises(DataError, match="no site 'x'"):
        hub.drop("x")


def test_receive_update_with_other_columns_raises_and_keeps_state():
    hub = Hub()
    hub.receive(open_site("a", table(60, 0)).publish())
    other = Site("b", "ill", policy=OPEN)
    other.learn(table(50, 1).rename(columns={"age": "years"}))
    with pytest.raises(DataError, match="columns of site 'b'"):
        hub.receive(other.publish())
    assert hub.sites == ["a"]


# -- release policy ---------------------------------------------------------------------------------


def test_publish_small_class_withholds_it_with_reason():
    frame = table(60, 0)
    frame.loc[frame.index[:3], "ill"] = 7
    site = Site("a", "ill")
    site.learn(frame)
    site_update = site.publish()
    assert 7 not in site_update.statistics.classes
    assert "fewer than 20 rows" in site_update.held_back["7"]
    hub = Hub()
    hub.receive(site_update)
    assert "withheld" in hub.explain()


def test_publish_few_rows_contains_no_raw_value():
    frame = table(24, 0)
    frame["age"] = 1234567.25
    site = Site("a", "ill", policy=OPEN)
    site.learn(frame)
    needle = np.float64(1234567.25).tobytes()
    assert needle in site.model.estimator.statistics_.to_bytes(), "control: the estimator buffers the raw row"
    site_update = site.publish()
    assert needle not in site_update.to_bytes()
    assert site_update.statistics.digest() == quantized(site.model.estimator.statistics_).digest()


def test_resume_after_reading_rows_again_continues_versions_and_policy():
    site = Site("a", "ill")
    site.learn(table(200, 0))
    first = site.publish()
    again = Site("a", "ill")
    again.learn(table(200, 0))
    second = again.resume(first).publish()
    assert second.age > first.age
    few = Site("a", "ill")
    few.learn(pd.concat([table(200, 0), table(4, 3)]))
    with pytest.raises(DataError, match="changed by fewer"):
        few.resume(second).publish()


def test_publish_after_small_change_raises():
    site = Site("a", "ill")
    site.learn(table(100, 0))
    site.publish()
    site.learn(table(3, 1))
    with pytest.raises(DataError, match="changed by fewer than 10 rows"):
        site.publish()
    site.learn(table(60, 2))
    assert site.publish().version == 2


# -- reports ----------------------------------------------------------------------------------------


def test_compare_matches_errors_computed_from_rows():
    frames = {"a": table(200, 0), "b": table(150, 1)}
    hub = Hub()
    for name, frame in frames.items():
        hub.receive(open_site(name, frame).publish())
    summaries = {summary.site: summary for summary in hub.compare()}
    for name, frame in frames.items():
        scores = hub_scores(hub, frame)
        sign = np.where(frame["ill"] == 1, 1.0, -1.0)
        error = np.square(scores - sign)
        expected = 0.5 * (error[sign > 0].mean() + error[sign < 0].mean())
        assert summaries[name].squared_error == pytest.approx(expected, rel=1e-8)
        assert summaries[name].rows == len(frame)


# -- messages ---------------------------------------------------------------------------------------


def test_folder_collect_receives_all_updates_and_rejects_damaged_file(tmp_path):
    folder = Folder(tmp_path / "shared")
    site = open_site("north/1 ä", table(50, 0))
    folder.put(site.publish())
    site.learn(table(20, 1))
    folder.put(site.publish())
    folder.put(open_site("south", table(30, 2)).publish())
    hub = Hub()
    assert folder.collect(hub) == 2
    assert folder.collect(hub) == 0
    assert hub.statistics.n_rows == 100
    victim = next(folder.path.glob("south*"))
    victim.write_bytes(victim.read_bytes()[:-20])
    with pytest.raises(FileFormatError, match="south"):
        folder.collect(Hub())


def test_from_bytes_with_any_changed_byte_raises():
    data = open_site("a", table(30, 0)).publish().to_bytes()
    rng = np.random.default_rng(0)
    for index in rng.integers(0, len(data), size=200):
        broken = bytearray(data)
        broken[index] ^= 1 + int(rng.integers(255))
        with pytest.raises(FileFormatError):
            SiteUpdate.from_bytes(bytes(broken))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_hub_after_any_history_equals_fit_on_rows_of_last_updates(data):  # noqa: C901  one branch per event
    """Sites learn, forget, crash, rejoin and are dropped; messages are lost, duplicated or late."""
    clock = iter(range(1, 1000))
    sites, rows, sent, hub = {}, {}, [], Hub()
    latest, dropped = {}, {}
    for step in range(data.draw(st.integers(3, 14))):
        name = data.draw(st.sampled_from("abc"))
        act = data.draw(st.sampled_from(["learn", "learn", "forget", "crash", "publish", "deliver", "drop"]))
        if act in {"learn", "crash"} or name not in sites:
            if act == "crash" or name not in sites:
                sites[name] = Site(name, "ill", policy=OPEN, clock=lambda: next(clock))
                rows[name] = []
            frame = table(
                data.draw(st.integers(2, 9)), step, data.draw(st.sampled_from([("DE",), ("FR", "NZ")]))
            )
            sites[name].learn(frame)
            rows[name].append(frame)
        elif act == "forget" and len(rows[name]) > 1:
            sites[name].forget(rows[name].pop(data.draw(st.integers(0, len(rows[name]) - 1))))
        elif act == "publish":
            sent.append((sites[name].publish(), list(rows[name])))
        elif act == "deliver" and sent:
            site_update, accepted = data.draw(st.sampled_from(sent))
            known = latest.get(site_update.site, ((-1, -1), None))[0]
            is_newer = site_update.age > max(known, dropped.get(site_update.site, (-1, -1)))
            assert hub.receive(site_update) == is_newer
            if is_newer:
                latest[site_update.site] = site_update.age, accepted
        elif act == "drop" and name in latest:
            hub.drop(name)
            dropped[name] = latest.pop(name)[0]
    frames = [frame for _, tables in latest.values() for frame in tables]
    if latest:
        assert hub.statistics.n_rows == sum(map(len, frames))
        if len({*pd.concat(frames)["ill"]}) == 2:
            probe = table(10, 99, ("DE", "FR", "NZ"))
            probe = probe[probe["country"].isin(pd.concat(frames)["country"].unique())]
            if len(probe):
                np.testing.assert_allclose(
                    hub_scores(hub, probe), pooled_scores(frames, probe), rtol=1e-7, atol=1e-8
                )
