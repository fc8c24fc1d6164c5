"""Operations on models: delete, rename, corrected labels, undo, audit log, quarantine, quotas, challenger."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steelyard.exceptions import DataError, ParameterError
from steelyard.service import SQLiteStore, Writer
from steelyard.service import rows as wire
from steelyard.service.commands import (
    Challenge,
    Delete,
    Forget,
    Label,
    Learn,
    Origin,
    Promote,
    Put,
    Release,
    Remember,
    Rename,
    Tick,
)
from steelyard.service.errors import Conflict, GoneError, NotFoundError, Unavailable
from steelyard.service.stored_rows import pack
from steelyard.service.stores import PendingRow
from steelyard.tables.columns import RowError
from tests.service.data import Clock, records, spec
from tests.service.sessions import ModelSession, batch
from tests.service.test_guarantees import fresh


@pytest.fixture
def session(where):
    session = ModelSession(where)
    session.do(Put("m", spec()))
    return session


def learn(session, n, first=0, **more):
    return session.do(Learn("m", batch(records(n, seed=first, first=first)), **more))


# -- delete and rename ------------------------------------------------------------------------------


def test_deleted_model_is_erased_and_its_successor_continues_version_numbers(session):
    rows = records(30)
    rows[0]["customer"] = "somebody-unusual"
    session.do(Learn("m", batch(rows)))
    assert session.do(Delete("m")) == {"deleted": "m", "rows": 30, "version": 1}
    assert "m" not in session.writer.published
    assert b"somebody-unusual" not in session.bytes()
    with pytest.raises(NotFoundError):
        session.do(Delete("m"))
    assert session.do(Put("m", spec()))["version"] == 2
    learn(session, 10)
    again = session.again()
    assert (again.model().version, again.model().n_rows) == (3, 10)


def test_delete_and_create_in_one_group_publishes_new_settings(session):
    session.writer.process([Delete("m"), Put("m", spec(target="other"))])
    assert session.model().spec.target == "other"


def test_renamed_model_keeps_rows_certificates_and_stored_responses(session):
    learn(session, 30, key="k1")
    session.do(Forget("m", ids=["r3"]))
    digest = session.model().summary()["digest"]
    assert session.do(Rename("m", "n"))["version"] == 3
    assert "m" not in session.writer.published
    assert session.model("n").summary()["digest"] == digest
    session.do(Forget("n", ids=["r4"]))
    again = session.again()
    assert again.model("n").n_rows == 28
    assert len(again.store.certificates("n", 9)) == 2
    with pytest.raises(NotFoundError):
        again.do(Learn("m", batch(records(2, first=90))))


def test_rename_to_existing_name_changes_nothing(session):
    session.do(Put("n", spec()))
    with pytest.raises(Conflict, match="already"):
        session.do(Rename("m", "n"))
    assert set(session.again().writer.published) == {"m", "n"}


# -- corrected labels -------------------------------------------------------------------------------


def corrected(rows, labels):
    return [{**row, "fraud": labels.get(row["row"], row["fraud"])} for row in rows]


@pytest.mark.parametrize("changes", [{}, {"memory": 25}, {"learner": {"class": "IncrementalSVC"}}])
def test_correcting_labels_gives_same_model_as_learning_correct_labels(tmp_path, changes):
    session, rows = ModelSession(tmp_path / "s.db"), records(40)
    session.do(Put("m", spec(**changes)))
    for begin in range(0, 40, 10):
        session.do(Learn("m", batch(rows[begin : begin + 10])))
    labels = {rows[k]["row"]: 1 - rows[k]["fraud"] for k in (17, 20, 38)}
    same = {rows[30]["row"]: rows[30]["fraud"]}
    version = session.model().version
    answer = session.do(Label("m", {**labels, **same, "never": 1}, correct=True))
    assert answer == {
        "labelled": 0,
        "corrected": 3,
        "already_labelled": ["r30"],
        "unknown": ["never"],
        "version": version + 1,
    }
    again, right = session.again(), corrected(rows, labels)
    expected = fresh(right, **changes)
    if "memory" in changes:
        expected.forget(batch(right[:15]))
    assert session.model().summary()["classes"] == again.model().summary()["classes"] == expected.classes()
    if "learner" not in changes:
        assert session.model().summary()["digest"] == again.model().summary()["digest"] == expected.digest()


def test_label_of_learned_row_changes_nothing_unless_correct_is_set(session):
    rows = records(10)
    session.do(Learn("m", batch(rows)))
    digest = session.model().summary()["digest"]
    answer = session.do(Label("m", {"r1": 1 - rows[1]["fraud"], "nobody": 0}))
    assert (answer["already_labelled"], answer["unknown"]) == (["r1"], ["nobody"])
    assert session.model().summary()["digest"] == digest


def test_label_request_with_correction_to_unknown_class_changes_nothing(session):
    learn(session, 20)
    row = wire.from_records(
        [{"amount": 1.0, "country": "DE", "customer": "c1", "row": "w"}], ["customer", "row"]
    )
    prediction = {"label": 0, "scores": [0.0, 1.0], "classes": [0, 1]}
    session.do(Remember("m", [PendingRow("w", 1.0, "c1", pack(row, prediction))]))
    before = session.model().summary()
    with pytest.raises(DataError, match="can only be corrected to 0, 1; got"):
        session.do(Label("m", {"w": 1, "r1": 7}, correct=True))
    assert session.model().summary() == session.again().model().summary() == before


def test_labels_cannot_be_corrected_if_learner_cannot_forget(tmp_path):
    session = ModelSession(tmp_path / "s.db")
    session.do(Put("m", spec(learner={"class": "KOIL"})))
    rows = records(20)
    session.do(Learn("m", batch(rows)))
    with pytest.raises(DataError, match="cannot be corrected"):
        session.do(Label("m", {"r1": 1 - rows[1]["fraud"]}, correct=True))


# -- undo -------------------------------------------------------------------------------------------


def test_undo_of_a_batch_gives_model_without_the_batch(session):
    learn(session, 20)
    learn(session, 15, first=100, key="bad import")
    learn(session, 10, first=200, key="good import")
    answer = session.do(Forget("m", request_key="bad import"))
    assert answer["forgotten"] == 15
    assert answer["certificate"]["by"] == "batch"
    kept = records(20) + records(10, seed=200, first=200)
    assert session.model().summary()["digest"] == fresh(kept).digest()
    again = session.again()
    assert again.model().summary()["digest"] == session.model().summary()["digest"]
    with pytest.raises(GoneError):
        learn(again, 15, first=100, key="bad import")
    with pytest.raises(NotFoundError, match="no rows of this batch"):
        again.do(Forget("m", request_key="bad import"))


def dated(rows, changes, first=0.0):
    return [{**row, "when": first + 10 * n} for n, row in enumerate(rows)] if "time" in changes else rows


@pytest.mark.parametrize("changes", [{}, {"time": "when", "memory": "1000d"}, {"memory": 14}], ids=str)
def test_undo_of_one_request_finds_its_rows_if_requests_were_committed_together(where, changes):
    session = ModelSession(where)
    session.do(Put("m", spec(**changes)))
    one_country = {"country": "DE"}  # with several categories, their order depends on expired rows
    oldest = [{**row, **one_country} for row in records(4)]
    session.do(Learn("m", batch(dated(oldest, changes))))
    rows = {
        key: [{**row, **one_country} for row in records(4, seed=n, first=100 * n)]
        for n, key in enumerate(("a", "b", "c"), 1)
    }
    # Rows of different requests alternate in a model that orders them by time.
    requests = [
        Learn("m", batch(dated(rows[key], changes, 100.0 + n)), key=key, fingerprint=key)
        for n, key in enumerate(rows)
    ]
    session.writer.process(requests)
    assert {request.future.result(0)["version"] for request in requests} <= {2, 3}
    assert session.do(Forget("m", ids=[rows["b"][1]["row"]]))["forgotten"] == 1
    session.do(Label("m", {rows["b"][2]["row"]: 1 - rows["b"][2]["fraud"]}, correct=True))
    rows["b"][2]["fraud"] = 1 - rows["b"][2]["fraud"]
    again = session.again()
    assert again.do(Forget("m", request_key="a"))["forgotten"] == 4
    first = oldest[2:] if changes == {"memory": 14} else oldest
    kept = first + [row for n, row in enumerate(rows["b"]) if n != 1] + rows["c"]
    assert again.model().n_rows == len(kept)
    assert again.model().summary()["digest"] == fresh(kept).digest()
    with pytest.raises(NotFoundError, match="no rows of this batch"):
        again.do(Forget("m", request_key="a"))
    assert again.do(Forget("m", request_key="b"))["forgotten"] == 3
    again = again.again()
    assert again.do(Forget("m", request_key="c"))["forgotten"] == 4
    assert again.model().summary()["digest"] == fresh(first).digest()
    assert again.store._do("SELECT * FROM chunk_keys") == []


def test_undo_by_arrival_time_gives_model_without_rows_of_that_period(session):
    for begin in range(0, 40, 10):
        session.clock.now = 1_000.0 + begin
        learn(session, 10, first=begin)
    assert session.do(Forget("m", learned=(1_010.0, 1_020.0)))["forgotten"] == 20
    kept = records(10) + records(10, seed=30, first=30)
    assert session.again().model().summary()["digest"] == fresh(kept).digest()


def test_undo_needs_stored_rows(tmp_path):
    session = ModelSession(tmp_path / "s.db")
    session.do(Put("m", spec(rows="until labelled")))
    learn(session, 10, key="k")
    with pytest.raises(Conflict, match="stores no rows"):
        session.do(Forget("m", request_key="k"))


# -- audit log --------------------------------------------------------------------------------------


def test_audit_log_lists_every_change_without_data_values(session):
    origin = Origin("3f9a", "10.0.0.7", "trace-1")
    learn(session, 10, key="k", origin=origin)
    learn(session, 10, key="k", origin=origin)
    with pytest.raises(Conflict):
        learn(session, 10, origin=origin)
    session.do(Forget("m", subject="c1", origin=origin))
    session.do(Delete("m", origin=origin))
    session.do(Tick(""))
    entries, more = session.writer.audit.read()
    assert more is None
    assert [(e.verb, e.outcome) for e in reversed(entries)] == [
        ("put", "done"),
        ("learn", "done"),
        ("learn", "repeated"),
        ("learn", "Conflict"),
        ("forget", "done"),
        ("delete", "done"),
    ]
    assert {(e.key, e.address, e.request_id) for e in entries if e.verb != "put"} == {tuple(origin)}
    assert entries[-2].rows == 10
    assert [e.verb for e in session.writer.audit.read(outcome="repeated", key="3f9a")[0]] == ["learn"]
    assert session.writer.audit.read(model="other")[0] == session.writer.audit.read(since=1e9)[0] == []
    stored = "".join(row[-1] for row in session.store._read("SELECT body FROM audit"))
    assert "c1" not in stored


def test_audit_log_is_paginated_and_old_entries_expire(session):
    for k in range(7):
        learn(session, 2, first=10 * k, key=f"k{k}")
    found, number = [], None
    while True:
        page, number = session.writer.audit.read(limit=3, before=number)
        found += page
        if number is None:
            break
    assert [e.version for e in found] == [7, 6, 5, 4, 3, 2, 1, 0]
    session.clock.now += 91 * 86_400.0
    session.do(Tick(""))
    assert session.writer.audit.read()[0] == []


def test_failed_group_is_recorded_in_audit_log_by_next_group(session, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(session.store, "append", _failing)
        with pytest.raises(Unavailable):
            learn(session, 5)
    learn(session, 5)
    assert [e.outcome for e in session.writer.audit.read(verb="learn")[0]] == ["done", "failed"]


def _failing(*_args):
    raise OSError("the disk is gone")


# -- guards and quotas ------------------------------------------------------------------------------

GUARDED = {"classes": [0, 1], "ranges": {"amount": [-10, 10]}}


def test_row_with_unexpected_class_or_value_out_of_range_is_refused(tmp_path):
    session = ModelSession(tmp_path / "s.db")
    session.do(Put("m", spec(**GUARDED)))
    learn(session, 20)
    for change in ({"fraud": 7}, {"amount": 1e6}):
        rows = records(4, first=50)
        rows[2].update(change)
        with pytest.raises(RowError, match="nothing was changed") as refused:
            session.do(Learn("m", batch(rows)))
        assert (refused.value.row, refused.value.column) == (2, next(iter(change)))
    assert session.model().n_rows == 20


def test_quarantined_rows_can_be_learned_or_discarded_later(tmp_path):
    session = ModelSession(tmp_path / "s.db")
    session.do(Put("m", spec(**GUARDED, violations="quarantine")))
    rows = records(20)
    rows[3]["amount"], rows[5]["fraud"], rows[9]["amount"] = 99.0, 7, -99.0
    answer = session.do(Learn("m", batch(rows)))
    assert (answer["learned"], answer["quarantined"]) == (17, 3)
    waiting = session.store.quarantined("m", 0, 99)
    assert [row.id for row in waiting] == ["r3", "r5", "r9"]
    assert "99" not in waiting[0].reason
    assert session.do(Release("m", [waiting[0].number], learn=True))["released"] == 1
    assert session.do(Release("m", [waiting[1].number], learn=False))["released"] == 1
    with pytest.raises(NotFoundError):
        session.do(Release("m", [waiting[0].number], learn=True))
    kept = [row for row in rows if row["row"] not in {"r5", "r9", "r3"}] + [rows[3]]
    assert session.model().summary()["digest"] == fresh(kept).digest()
    certificate = session.do(Forget("m", ids=["r9"]))["certificate"]
    assert certificate["quarantine_dropped"] == 1
    assert session.again().store.quarantined("m", 0, 99) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"classes": []},
        {"classes": "01"},
        {"ranges": {"amount": [2, 1]}},
        {"ranges": {"amount": 3}},
        {"violations": "ignore"},
        {"quota": {"pages": 3}},
        {"quota": {"rows": 0}},
    ],
)
def test_invalid_guards_and_quotas_raise(wrong):
    with pytest.raises(ParameterError):
        spec(**wrong)


@pytest.mark.parametrize("quota", [{"rows": 25}, {"columns": 1}, {"megabytes": 1e-6}])
def test_rows_beyond_the_quota_of_a_model_are_refused(tmp_path, quota):
    session = ModelSession(tmp_path / "s.db")
    session.do(Put("m", spec()))
    learn(session, 20)
    session.do(Put("m", spec(quota=quota)))
    session.do(Tick(""))
    with pytest.raises(Conflict, match=f"the quota of this model is .* {next(iter(quota))}"):
        learn(session, 10, first=50)
    session.do(Put("m", spec(quota={"rows": 40})))
    assert learn(session, 10, first=50)["learned"] == 10


def test_new_columns_beyond_the_quota_of_a_model_are_refused(tmp_path):
    session = ModelSession(tmp_path / "s.db")
    session.do(Put("m", spec(quota={"columns": 10})))
    learn(session, 20)
    before = session.do(Learn("m", batch(records(5, first=20))))["version"]
    wide = [row | {f"x{k}": 1.0 for k in range(8)} for row in records(5, first=30)]
    with pytest.raises(Conflict, match="the quota of this model is 10 columns, but it would have"):
        session.do(Learn("m", batch(wide)))
    assert session.do(Learn("m", batch(records(5, first=40))))["version"] == before + 1


def test_rows_beyond_the_quota_of_pending_rows_are_refused(tmp_path):
    session = ModelSession(tmp_path / "s.db")
    session.do(Put("m", spec(quota={"waiting": 2})))
    with pytest.raises(Conflict, match="with 3 more there would be more than 2"):
        session.do(Remember("m", [PendingRow(f"w{k}", 1.0, None, b"") for k in range(3)]))


# -- challenger -------------------------------------------------------------------------------------

RIVAL = {"learner": {"class": "ProximalSVC", "C": 0.01}}


@pytest.mark.parametrize("replay", [True, False])
def test_challenger_learns_the_same_rows_and_is_promoted_and_rolled_back(session, replay):
    learn(session, 30)
    session.do(Challenge("m", spec(**RIVAL), replay=replay))
    learn(session, 30, first=100)
    rows = records(30) * replay + records(30, seed=100, first=100)
    assert session.model().comparison()["digest"] == fresh(rows, **RIVAL).digest()
    if replay:
        assert session.model().comparison()["rows"] == 30
    first = session.model().summary()["digest"]
    answer = session.do(Promote("m"))
    assert answer["spec"]["learner"] == RIVAL["learner"]
    assert session.model().summary()["digest"] == fresh(rows, **RIVAL).digest()
    assert session.model().comparison()["digest"] == first
    again = session.again()
    learn(again, 10, first=200)
    assert again.do(Promote("m"))["version"] == answer["version"] + 2
    everything = [*records(30), *records(30, seed=100, first=100), *records(10, seed=200, first=200)]
    assert again.model().summary()["digest"] == fresh(everything).digest()
    again.do(Challenge("m", None))
    assert again.again().model().comparison() is None


def test_forget_and_label_corrections_also_apply_to_challenger(session):
    rows = records(40)
    session.do(Learn("m", batch(rows)))
    session.do(Challenge("m", spec(**RIVAL)))
    session.do(Forget("m", ids=["r3"]))
    session.do(Label("m", {"r4": 1 - rows[4]["fraud"]}, correct=True))
    kept = corrected([row for row in rows if row["row"] != "r3"], {"r4": 1 - rows[4]["fraud"]})
    expected = fresh(kept, **RIVAL).digest()
    assert session.model().comparison()["digest"] == expected
    assert session.again().model().comparison()["digest"] == expected


def test_forget_erases_category_from_model_and_challenger(session):
    learn(session, 40)
    session.do(Challenge("m", spec(learner={"class": "ProximalSVC", "C": 3.0})))
    session.do(Learn("m", batch([{**records(1, first=100)[0], "country": "Text-of-one-person"}])))
    assert session.do(Forget("m", ids=["r100"]))["certificate"]["complete"]
    assert session.model().challenger is not None
    assert b"Text-of-one-person" not in session.bytes()
    assert session.again().model().challenger.summary() == session.model().challenger.summary()


def test_forget_ends_challenger_that_cannot_forget(session):
    learn(session, 30)
    session.do(Challenge("m", spec(learner={"class": "KOIL"})))
    assert session.model().comparison() is not None
    assert session.do(Forget("m", ids=["r3"]))["forgotten"] == 1
    assert session.model().comparison() is None
    assert session.again().model().challenger_ended == "DataError"


def test_challenger_and_model_are_evaluated_on_the_same_rows(session):
    learn(session, 30)
    session.do(Challenge("m", spec()))
    learn(session, 100, first=100)
    comparison = session.model().comparison()
    assert comparison["model"] == comparison["challenger"]
    assert comparison["rows"] == 100


@pytest.mark.parametrize("other", [{"target": "amount"}, {"memory": 20}, {"rows": "none"}])
def test_challenger_that_cannot_share_rows_is_refused(session, other):
    learn(session, 10)
    with pytest.raises(ParameterError, match="challenger must"):
        session.do(Challenge("m", spec(**other)))
    assert session.model().comparison() is None


def test_challenger_of_renamed_model_is_promoted_under_the_new_name(session):
    learn(session, 40)
    session.do(Challenge("m", spec(**RIVAL)))
    session.do(Rename("m", "n"))
    session.do(Promote("n"))
    session.do(Learn("n", batch(records(10, seed=1, first=100))))
    expected = fresh(records(40) + records(10, seed=1, first=100), **RIVAL).digest()
    assert session.model("n").summary()["digest"] == expected
    again = session.again()
    assert set(again.writer.published) == {"n"}
    assert again.model("n").summary()["digest"] == expected


def test_promote_without_challenger_is_refused(session):
    for request in (Promote("m"), Challenge("m", None)):
        with pytest.raises(NotFoundError, match="has no challenger"):
            session.do(request)


# -- histories --------------------------------------------------------------------------------------


class History:
    """A session, and the rows and settings that its model must have."""

    def __init__(self, path, seed):
        self.session, self.name, self.seed = ModelSession(path), "m", seed
        self.rows, self.batches, self.settings = {}, [], [{}, None]
        self.session.do(Put("m", spec()))
        self.learn(0)

    def some(self, k):
        return sorted(self.rows)[k % max(len(self.rows), 1) :][:2]

    def learn(self, k):
        new = [  # rows without categories, because category codes depend on the order of first occurrence
            {**row, "country": float(len(row["customer"]) + k)}
            for row in records(12, seed=self.seed + k, first=100 * k)
        ]
        self.session.do(Learn(self.name, batch(new), key=f"k{k}"))
        self.rows.update({row["row"]: row for row in new})
        self.batches.append((f"k{k}", [row["row"] for row in new]))

    def forget(self, k):
        some = self.some(k)
        self.session.do(Forget(self.name, ids=some))
        for row_id in some:
            del self.rows[row_id]

    def correct(self, k):
        labels = {row_id: 1 - self.rows[row_id]["fraud"] for row_id in self.some(k)}
        self.session.do(Label(self.name, labels, correct=True))
        for row_id, label in labels.items():
            self.rows[row_id] = {**self.rows[row_id], "fraud": label}

    def undo(self, _k):
        if len(self.batches) > 1 and set(self.batches[-1][1]) & set(self.rows):
            key, ids = self.batches.pop()
            self.session.do(Forget(self.name, request_key=key))
            for row_id in ids:
                self.rows.pop(row_id, None)

    def challenge(self, _k):
        self.session.do(Challenge(self.name, spec(**RIVAL)))
        self.settings[1] = RIVAL

    def promote(self, _k):
        if self.settings[1] is not None:
            self.session.do(Promote(self.name))
            self.settings.reverse()

    def rename(self, k):
        self.session.do(Rename(self.name, f"m{k}"))
        self.name = f"m{k}"

    def recover(self, _k):
        self.session = self.session.again()

    def check(self, model):
        kept = list(self.rows.values())
        assert model.summary()["digest"] == fresh(kept, **self.settings[0]).digest()
        if self.settings[1] is not None:
            assert model.comparison()["digest"] == fresh(kept, **self.settings[1]).digest()


STEPS = ["learn", "forget", "correct", "undo", "challenge", "promote", "rename", "recover"]


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(st.sampled_from(STEPS), min_size=4, max_size=12), seed=st.integers(0, 99))
def test_model_after_any_operations_equals_model_of_remaining_rows(tmp_path_factory, steps, seed):
    history = History(tmp_path_factory.mktemp("h") / "s.db", seed)
    for k, step in enumerate(steps, 1):
        if len({row["fraud"] for row in history.rows.values()}) == 2 or step == "learn":
            getattr(history, step)(k)
    if len({row["fraud"] for row in history.rows.values()}) == 2:
        history.check(history.session.model(history.name))
        history.check(history.session.again().model(history.name))
    while ModelSession.opened:
        ModelSession.opened.pop().close()


def test_follower_unpublishes_deleted_and_renamed_models(tmp_path):
    leader = ModelSession(tmp_path / "s.db")
    for name in ("m", "n"):
        leader.do(Put(name, spec()))
    leader.do(Learn("m", batch(records(10))))
    store = SQLiteStore(tmp_path / "s.db")
    follower = Writer(store, clock=Clock(), may_learn=False)
    follower.leads = False
    leader.do(Delete("m"))
    leader.do(Rename("n", "o"))
    follower._follow()
    assert set(follower.published) == {"o"}
    store.close()
