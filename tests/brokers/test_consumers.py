"""Models fed from real brokers learn every message exactly once."""

from __future__ import annotations

import io
import json
import logging
import time

import pyarrow as pa
import pytest

from steelyard.brokers import Address, BrokerError, open_source
from steelyard.brokers.interface import client_errors
from tests.brokers.feeding import SETTINGS, digest, encoded, records, topic
from tests.brokers.servers import free_port, received
from tests.service.data import n_unused_labels
from tests.service.processes import until


def _source(broker, name, **more):
    return {**SETTINGS, "source": {"address": broker.address(name)}, **more}


def _as_csv(rows):
    lines = [",".join(rows[0]), *(",".join(str(value) for value in row.values()) for row in rows)]
    return "\n".join(lines).encode()


def _as_arrow(rows):
    table, sink = pa.Table.from_pylist(rows), io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def test_json_csv_and_arrow_messages_give_same_model_as_their_rows(broker, fed):
    rows, name = records(300), topic()
    broker.create(name)
    model = fed(_source(broker, name))
    if broker.scheme == "mqtt":
        until(lambda: model.source.state == "reads")  # MQTT only keeps messages for subscribers
    broker.send(name, [*encoded(rows[:100]), _as_csv(rows[100:200]), _as_arrow(rows[200:])])
    model.wait_for_rows(300)
    assert (model.n_rows, model.digest) == (300, digest(rows))
    assert model.source.describe()["dead_letters"] == 0


def test_restarted_feed_continues_at_the_stored_position(positioned, fed):
    rows, name = records(200), topic()
    positioned.create(name)
    positioned.send(name, encoded(rows[:120]))
    first = fed(_source(positioned, name))
    first.wait_for_rows(120)
    first.stop()
    positioned.send(name, encoded(rows[120:]))
    second = fed(_source(positioned, name))
    second.wait_for_rows(200)
    assert (second.n_rows, second.digest) == (200, digest(rows))
    until(lambda: second.source.lag == 0)


def test_mqtt_session_keeps_messages_while_the_service_is_down(brokers, fed):
    broker, name, rows = brokers("mqtt"), topic(), records(60)
    first = fed(_source(broker, name))
    until(lambda: first.source.state == "reads")
    broker.send(name, encoded(rows[:20]))
    first.wait_for_rows(20)
    first.stop()
    broker.send(name, encoded(rows[20:]))
    second = fed(_source(broker, name))
    second.wait_for_rows(60)
    assert second.digest == digest(rows)


def test_mqtt_rows_delivered_twice_with_same_id_are_learned_once(brokers, fed):
    broker, name, rows = brokers("mqtt"), topic(), records(30, ids=True)
    model = fed(_source(broker, name, id="id"))
    until(lambda: model.source.state == "reads")
    broker.send(name, encoded(rows[:20] + rows[10:]))
    model.wait_for_rows(30)
    until(lambda: model.source.n_messages == 40)
    assert (model.n_rows, model.digest) == (30, digest(rows, {**SETTINGS, "id": "id"}))


def test_broker_restart_neither_loses_nor_repeats_messages(brokers, fed, tmp_path):
    for kind in ("nats", "redis"):
        broker, rows, name = brokers(kind), records(90), topic()
        broker.create(name)
        model = fed(_source(broker, name))
        broker.send(name, encoded(rows[:40]))
        model.wait_for_rows(40)
        broker.restart()
        broker.send(name, encoded(rows[40:]))
        model.wait_for_rows(90)
        assert (model.n_rows, model.digest) == (90, digest(rows))
        model.stop()
        (tmp_path / "store.db").unlink()


def test_labels_before_and_after_their_rows_are_joined_by_id(positioned, fed):
    rows, name, labels, dead = records(120, ids=True), topic(), topic(), topic()
    positioned.create(name, labels, dead)
    bare = [{key: row[key] for key in ("id", "a", "b")} for row in rows]
    told = [{"id": row["id"], "kind": row["kind"]} for row in rows]
    positioned.send(labels, encoded(told[:40]))
    more = {"labels": {"address": positioned.address(labels), "wait": "1h"}}
    more |= {"dead_letter": {"address": positioned.address(dead)}, "id": "id"}
    model = fed(_source(positioned, name, **more))
    until(lambda: n_unused_labels(model.store) == 40)
    positioned.send(name, encoded(bare))
    until(lambda: model.n_rows == 40)  # without this wait the second label of a row could precede the row
    positioned.send(labels, encoded([*told[40:], {"id": "unknown", "kind": 1}, told[5]]))
    model.wait_for_rows(120)
    assert (model.n_rows, model.digest) == (120, digest(rows, model.settings))
    # The second label of a row is refused at once; the label of an unknown row waits for an hour.
    letters = [json.loads(letter) for letter in received(positioned, dead, 1)]
    assert [json.loads(letter["payload"])["id"] for letter in letters] == ["r5"]
    assert "learned with a label before" in letters[0]["reason"]
    until(lambda: n_unused_labels(model.store) == 1)


def test_label_of_unknown_row_becomes_dead_letter_after_timeout(brokers, fed):
    broker, name, labels, dead = brokers("redis"), topic(), topic(), topic()
    broker.create(name, labels, dead)
    broker.send(labels, encoded([{"id": "unknown", "kind": 1}]))
    more = {"labels": {"address": broker.address(labels), "wait": "1s"}, "id": "id"}
    model = fed(_source(broker, name, **more, dead_letter={"address": broker.address(dead)}))
    (letter,) = received(broker, dead, 1)
    assert json.loads(letter)["reason"] == "no row with this id has arrived"
    until(lambda: n_unused_labels(model.store) == 0)


def test_bad_messages_become_dead_letters_and_all_others_are_learned(positioned, fed):
    rows, name, dead = records(80), topic(), topic()
    positioned.create(name, dead)
    timed = [{**row, "at": 1_700_000_000 + k} for k, row in enumerate(rows)]
    bad = [
        b"{poisoned",
        b"",
        json.dumps({"a": 1.0, "kind": 0, "at": 1_700_000_000}).encode(),  # a declared column is missing
        json.dumps({"a": "text", "b": 1.0, "kind": 0, "at": 1_700_000_000}).encode(),
        json.dumps({"a": 1.0, "b": 1.0, "kind": 0, "at": time.time() + 1e7}).encode(),  # dated in the future
        b"\xff\xff\xff\xffnot arrow",
    ]
    payloads = encoded(timed)
    for k, payload in enumerate(bad):
        payloads.insert(10 * k + 3, payload)
    positioned.send(name, payloads)
    model = fed(_source(positioned, name, time="at", dead_letter={"address": positioned.address(dead)}))
    model.wait_for_rows(80)
    until(lambda: model.source.n_messages == 86)
    letters = [json.loads(letter) for letter in received(positioned, dead, 6)]
    assert len({letter["id"] for letter in letters}) == 6
    assert all(letter["reason"] and "request" not in letter["reason"] for letter in letters)
    assert model.digest == digest(timed, model.settings)


def test_message_that_lacks_a_column_becomes_dead_letter_in_any_batch(brokers, fed):
    broker, name, dead = brokers("nats"), topic(), topic()
    broker.create(name, dead)
    rows = [{"a": float(k), "b": float(k % 7), "kind": k % 2} for k in range(20)]
    late = {"a": 1.0, "c": 2.0, "kind": 0}  # adds the column c
    sent = [*rows, {"c": 1.0, "kind": 0}, late, {"c": 3.0, "kind": 1}]
    broker.send(name, encoded(sent))
    addresses = {
        "source": {"address": broker.address(name)},
        "dead_letter": {"address": broker.address(dead)},
    }
    model = fed({"target": "kind", **addresses})
    until(lambda: model.source.n_messages == len(sent))
    (letter,) = received(broker, dead, 1)
    assert json.loads(letter)["reason"].startswith("the column 'a' is missing")
    assert model.n_rows == len(sent) - 1


def test_feed_without_dead_letter_topic_stops_before_bad_message(brokers, fed, caplog):
    broker, rows, name = brokers("nats"), records(40), topic()
    broker.create(name)
    broker.send(name, [*encoded(rows[:20]), b"{secret value", *encoded(rows[20:])])
    model = fed(_source(broker, name))
    until(lambda: "cannot be used" in model.source.error)
    assert "[dead_letter]" in model.source.error
    assert "secret value" not in caplog.text
    until(lambda: model.n_rows == 20)
    assert model.store.positions("m", model.source.topic)[""] == "20"


def test_sent_predictions_have_unique_and_stable_ids(positioned, fed):
    rows, name, out = records(200, ids=True), topic(), topic()
    positioned.create(name, out)
    positioned.send(name, encoded(rows[:100]))
    more = {"id": "id", "sink": {"address": positioned.address(out)}}
    model = fed(_source(positioned, name, **more))
    model.wait_for_rows(100)
    positioned.send(name, encoded([{key: row[key] for key in ("id", "a", "b")} for row in rows[100:]]))
    until(lambda: model.source.n_messages == 200)
    found = [json.loads(one) for one in received(positioned, out, 100)]
    by_row = {one["row"]: one for one in found}
    assert {f"r{k}" for k in range(100, 200)} <= set(by_row)
    assert len({one["id"] for one in found}) == len(found)
    assert model.n_rows == 100  # rows without labels are only predicted
    assert all(one["id"].lower().startswith(name) for one in found)


def test_alarms_only_option_omits_predictions_of_the_most_frequent_class(brokers, fed):
    broker, rows, name, out = brokers("redis"), records(300), topic(), topic()
    broker.create(name, out)
    broker.send(name, encoded(rows[:200]))
    model = fed(_source(broker, name, sink={"address": broker.address(out), "only": "alarms"}))
    model.wait_for_rows(200)
    broker.send(name, encoded(rows[200:]))
    model.wait_for_rows(300)
    labels = [json.loads(one)["label"] for one in received(broker, out)]
    assert set(labels) == {1}
    assert 0 < len(labels) < 300


def test_feed_pauses_while_too_many_rows_wait_for_labels(brokers, fed):
    broker, rows, name, labels = brokers("redis"), records(60, ids=True), topic(), topic()
    broker.create(name, labels)
    broker.send(name, encoded([{key: row[key] for key in ("id", "a", "b")} for row in rows]))
    settings = _source(broker, name, id="id", labels={"address": broker.address(labels)})
    settings["source"]["batch"] = 10
    model = fed(settings, max_remembered=20)
    until(lambda: model.source.state == "waits for labels")
    assert model.store.n_pending("m") == 20
    broker.send(labels, encoded([{"id": row["id"], "kind": row["kind"]} for row in rows]))
    model.wait_for_rows(60)
    assert model.digest == digest(rows, model.settings)


def test_feed_of_recreated_topic_stops_with_error(brokers):
    for kind in ("nats", "redis", "kafka"):
        broker, name = brokers(kind), topic()
        broker.create(name)
        broker.send(name, [b"{}"])
        positions = {"nats": {"": "7"}, "redis": {"": "99999999999999-0/9"}, "kafka": {"0": "7"}}[kind]
        with pytest.raises(BrokerError, match="created again"):
            open_source(Address.parse(broker.address(name)), positions)


def test_reading_idle_topic_returns_nothing_until_messages_arrive(positioned):
    name = topic()
    positioned.create(name)
    source = open_source(Address.parse(positioned.address(name)))
    try:
        assert [source.read(100, 0.05) for _ in range(3)] == [[], [], []]
        positioned.send(name, [b"1", b"2"])
        found = []
        while len(found) < 2:
            found += source.read(100, 0.2)
        assert sorted(message.payload for message in found) == [b"1", b"2"]
        assert source.lag() == 0
    finally:
        source.close()


def test_refused_credentials_give_error_that_mentions_credentials():
    address = Address.parse("nats://alice:hunter2@127.0.0.1/payments")
    with pytest.raises(BrokerError, match="check the user") as caught, client_errors(address, OSError):
        raise OSError("'Authorization Violation' of alice")
    assert "alice" not in str(caught.value)


def test_missing_topic_error_has_a_hint(positioned):
    with pytest.raises(BrokerError, match=r"does not exist|no JetStream") as caught:
        open_source(Address.parse(positioned.address("missing")))
    assert caught.value.hint


@pytest.mark.parametrize("kind", ["nats", "redis", "mqtt"])  # Kafka waits 5 s for an answer
def test_unreachable_broker_error_does_not_show_credentials(kind, brokers):
    brokers(kind)  # skips the test if the client is not installed
    address = Address.parse(f"{kind}://alice:hunter2@127.0.0.1:{free_port()}/payments")
    with pytest.raises(BrokerError) as caught:
        open_source(address)
    for text in (str(caught.value), repr(caught.value), repr(address), str(address)):
        assert "hunter2" not in text
        assert "alice" not in text


def test_unreachable_broker_is_retried_and_logged_once_without_credentials(fed, caplog, brokers):
    brokers("nats")
    address = f"nats://alice:hunter2@127.0.0.1:{free_port()}/payments"
    with caplog.at_level(logging.DEBUG):
        model = fed({**SETTINGS, "source": {"address": address}})
        until(lambda: model.source.state == "retries")
        time.sleep(0.5)
        model.stop()
    assert "hunter2" not in caplog.text + json.dumps(model.source.describe())
    assert sum("source nats:payments" in record.getMessage() for record in caplog.records) == 1
