"""Several places, one model: exactly that of all rows, whatever becomes of the messages."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard import ProximalSVC
from steelyard.exceptions import DataError, FileFormatError
from steelyard.federated import Folder, Hub, Site, SiteUpdate, resolution
from tests.federated.data import OPEN, table

STEPS = 3e-9  # sites count in at least 2**25 steps to a typical deviation, one learner in 2**33


def pooled_scores(frames, probe):
    """One learner on all the rows in one place, by plain one-hot columns."""
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


def test_one_message_a_site_gives_the_model_of_all_rows():
    frames = [table(80, 0), table(50, 1, ("FR", "NZ")), table(30, 2, ("AU",))]
    hub = Hub()
    for number, frame in enumerate(frames):
        assert hub.receive(open_site(f"s{number}", frame).publish().to_bytes())
    probe = table(40, 9, ("DE", "FR", "NZ", "AU"))
    np.testing.assert_allclose(hub_scores(hub, probe), pooled_scores(frames, probe), rtol=0, atol=STEPS)


def test_a_bulletin_replaces_the_one_before_and_the_old_one_does_no_harm():
    site = open_site("a", table(60, 0))
    first = site.publish()
    site.learn(table(40, 1))
    second = site.publish()
    hub = Hub()
    assert hub.receive(second)
    assert not hub.receive(first), "late"
    assert not hub.receive(second), "twice"
    assert hub.statistics.n_rows == 100


def test_a_site_that_forgets_is_forgotten_by_the_hub():
    kept, gone = table(60, 0), table(25, 1)
    site = open_site("a", pd.concat([kept, gone], ignore_index=True))
    hub = Hub()
    hub.receive(site.publish())
    site.forget(gone)
    hub.receive(site.publish())
    probe = table(30, 5)
    np.testing.assert_allclose(hub_scores(hub, probe), pooled_scores([kept], probe), rtol=0, atol=STEPS)


def test_a_site_that_leaves_is_out_without_a_trace():
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
    assert hub.receive(late), "a new life of the site may come back"
    with pytest.raises(DataError, match="no site 'x'"):
        hub.drop("x")


def test_sites_with_other_columns_are_refused_and_nothing_changes():
    hub = Hub()
    hub.receive(open_site("a", table(60, 0)).publish())
    strange = Site("b", "ill", policy=OPEN)
    strange.learn(table(50, 1).rename(columns={"age": "years"}))
    with pytest.raises(DataError, match="columns of site 'b'"):
        hub.receive(strange.publish())
    assert hub.sites == ["a"]


# -- what may leave ---------------------------------------------------------------------------------


def test_a_class_of_few_rows_is_held_back_and_said_so():
    frame = table(60, 0)
    frame.loc[frame.index[:3], "ill"] = 7
    site = Site("a", "ill")
    site.learn(frame)
    site_update = site.publish()
    assert 7 not in site_update.statistics.classes
    assert "fewer than 20 rows" in site_update.held_back["7"]
    hub = Hub()
    hub.receive(site_update)
    assert "held back" in hub.explain()


def test_no_bulletin_carries_a_row_as_it_came():
    frame = table(24, 0)
    frame["age"] = 1234567.25
    site = Site("a", "ill", policy=OPEN)
    site.learn(frame)
    needle = np.float64(1234567.25).tobytes()
    assert needle in site.model.estimator.statistics_.to_bytes(), "the control: it waits there as it came"
    site_update = site.publish()
    assert needle not in site_update.to_bytes()
    assert site_update.statistics.digest() == resolution.settled(site.model.estimator.statistics_).digest()


def test_a_site_that_reads_all_rows_anew_goes_on_after_its_last_bulletin():
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


def test_a_change_of_few_rows_is_not_published():
    site = Site("a", "ill")
    site.learn(table(100, 0))
    site.publish()
    site.learn(table(3, 1))
    with pytest.raises(DataError, match="changed by fewer than 10 rows"):
        site.publish()
    site.learn(table(60, 2))
    assert site.publish().version == 2


# -- looking at it ----------------------------------------------------------------------------------


def test_the_comparison_is_that_of_the_rows_themselves():
    frames = {"a": table(200, 0), "b": table(150, 1)}
    hub = Hub()
    for name, frame in frames.items():
        hub.receive(open_site(name, frame).publish())
    standings = {standing.site: standing for standing in hub.compare()}
    for name, frame in frames.items():
        scores = hub_scores(hub, frame)
        sign = np.where(frame["ill"] == 1, 1.0, -1.0)
        error = np.square(scores - sign)
        expected = 0.5 * (error[sign > 0].mean() + error[sign < 0].mean())
        assert standings[name].squared_error == pytest.approx(expected, rel=1e-8)
        assert standings[name].rows == len(frame)


# -- messages ---------------------------------------------------------------------------------------


def test_a_folder_carries_bulletins(tmp_path):
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


def test_any_changed_byte_of_a_bulletin_is_refused():
    data = open_site("a", table(30, 0)).publish().to_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(data), size=200):
        broken = bytearray(data)
        broken[place] ^= 1 + int(rng.integers(255))
        with pytest.raises(FileFormatError):
            SiteUpdate.from_bytes(bytes(broken))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_after_any_history_the_hub_has_the_rows_of_the_last_bulletins(data):  # noqa: C901  a history
    """Sites learn, forget, crash and rejoin; messages are lost, doubled, late; sites are dropped."""
    clock = iter(range(1, 1000))
    sites, rows, sent, hub = {}, {}, [], Hub()
    latest, gone = {}, {}
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
            site_update, behind = data.draw(st.sampled_from(sent))
            known = latest.get(site_update.site, ((-1, -1), None))[0]
            news = site_update.age > max(known, gone.get(site_update.site, (-1, -1)))
            assert hub.receive(site_update) == news
            if news:
                latest[site_update.site] = site_update.age, behind
        elif act == "drop" and name in latest:
            hub.drop(name)
            gone[name] = latest.pop(name)[0]
    behind = [frame for _, frames in latest.values() for frame in frames]
    if latest:
        assert hub.statistics.n_rows == sum(map(len, behind))
        if len({*pd.concat(behind)["ill"]}) == 2:
            probe = table(10, 99, ("DE", "FR", "NZ"))
            probe = probe[probe["country"].isin(pd.concat(behind)["country"].unique())]
            if len(probe):
                np.testing.assert_allclose(
                    hub_scores(hub, probe), pooled_scores(behind, probe), rtol=1e-7, atol=1e-8
                )
