"""Topics in commands: `steelyard stream ADDRESS` and `steelyard serve --model` with topics."""

from __future__ import annotations

import json

import httpx
import pytest

from steelyard.brokers import Address
from steelyard.brokers.consumer import split_settings
from steelyard.brokers.interface import without_credentials
from steelyard.cli import main
from steelyard.exceptions import ParameterError
from tests.brokers.feeding import SETTINGS, digest, encoded, records, topic
from tests.runner import cli_runner
from tests.service.processes import Process, until

HOST = "nats://127.0.0.1:4222"


def _invoke(*words):
    done = cli_runner().invoke(main, list(map(str, words)), catch_exceptions=False)
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize("kind", ["nats", "redis"])  # Kafka has partitions, so the order would differ
def test_stream_command_gives_same_result_for_topic_and_file(kind, brokers, tmp_path):
    broker, rows, name = brokers(kind), records(400), topic()
    broker.create(name)
    broker.send(name, encoded(rows))
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b"\n".join(encoded(rows)))
    options = ("--target", "kind", "--model", "proximal", "--json")
    code, of_topic, errors = _invoke("stream", broker.address(name) + "?until=end", *options)
    assert code == 0, errors
    _, of_file, _ = _invoke("stream", file, *options)
    first, second = json.loads(of_topic), json.loads(of_file)
    assert first["rows"] == second["rows"] == 400
    for name in ("confusion", "by_class", "labels"):
        assert first[name] == second[name]


def test_stream_command_skips_and_lists_invalid_messages(brokers):
    broker, rows, name = brokers("redis"), records(100), topic()
    broker.create(name)
    broker.send(name, [*encoded(rows[:50]), b"{poisoned", *encoded(rows[50:])])
    options = ("--target", "kind", "--model", "proximal")
    address = broker.address(name) + "?until=end"
    code, _, errors = _invoke("stream", address, *options, "--on-bad-row", "skip")
    assert code == 0, errors
    assert "skipped 1 row" in errors
    code, _, errors = _invoke("stream", address, *options)
    assert code == 1
    assert "not JSON" in errors


def test_missing_topic_error_does_not_show_credentials(brokers):
    brokers("redis")
    address = brokers("redis").address("missing")
    code, _, errors = _invoke("stream", address, "--target", "kind")
    assert code == 1
    assert "stream does not exist" in errors


@pytest.mark.parametrize(
    "words",
    [
        ("stream", "kafk://alice:hunter2@127.0.0.1/x", "--target", "kind"),
        ("serve", "--store", "kafk://alice:hunter2@127.0.0.1/x"),
    ],
)
def test_unknown_address_scheme_error_does_not_show_credentials(words):
    code, _, errors = _invoke(*words)
    assert code == 1
    assert "kafk://" in errors
    assert "hunter2" not in errors


def test_displayed_database_address_has_no_credentials():
    assert without_credentials("postgresql://alice:hunter2@db/shop") == "postgresql://db/shop"
    assert without_credentials("rows@2026.csv") == "rows@2026.csv"


def test_stream_report_contains_no_credentials(brokers, tmp_path):
    broker, name = brokers("nats"), topic()
    broker.create(name)
    broker.send(name, encoded(records(60)))
    address = broker.address(name).replace("//", "//alice:hunter2@") + "?until=end"
    report = tmp_path / "report.html"
    options = ("--target", "kind", "--model", "proximal", "--report", report)
    code, stdout, errors = _invoke("stream", address, *options)
    assert code == 0, errors
    for text in (stdout, errors, report.read_text()):
        assert "hunter2" not in text


def test_service_with_topics_shows_lag_and_hides_credentials(brokers, tmp_path):
    broker, rows, name = brokers("nats"), records(80), topic()
    broker.create(name)
    broker.send(name, encoded(rows))
    file = tmp_path / "m.toml"
    address = broker.address(name).replace("//", "//alice:hunter2@")
    file.write_text(
        f'target = "kind"\n[columns]\na = "number"\nb = "number"\n[source]\naddress = "{address}"\n'
    )
    with Process(tmp_path / "store.db", "--model", str(file)) as service:
        until(lambda: service.get("/v1/models/m").json()["rows"] == 80)
        found = service.get("/v1/models/m").json()
        assert found["digest"] == digest(rows)
        assert found["topics"][0]["state"] == "reads"
        until(lambda: 'steelyard_topic_lag{model="m",role="source"} 0.0' in service.get("/metrics").text)
        texts = [service.get(path).text for path in ("/v1/models/m", "/v1/models", "/metrics")]
        with httpx.stream("GET", f"{service.url}/v1/models/m/events", timeout=60) as events:
            texts.append(next(events.iter_text()))
    texts += [service.log, (tmp_path / "store.db").read_bytes().decode("latin-1")]
    assert not [text for text in texts if "hunter2" in text]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("http://127.0.0.1/x", "must begin with"),
        (f"{HOST}/", "a host and a topic"),
        ("nats:///payments", "a host and a topic"),
        ("nats://127.0.0.1:port/payments", "not valid"),
        (f"{HOST}/payments?strat=end", "'strat'"),
        (f"{HOST}/payments?start=now", "start must be"),
        ("nats://a:$STEELYARD_UNSET_VARIABLE@127.0.0.1/payments", "STEELYARD_UNSET_VARIABLE"),
    ],
)
def test_parsing_invalid_broker_address_raises(text, message):
    with pytest.raises(ParameterError, match=message):
        Address.parse(text)


def test_password_is_read_from_the_environment(monkeypatch):
    monkeypatch.setenv("BROKER_PASSWORD", "hunter2")
    assert Address.parse("redis://alice:$BROKER_PASSWORD@127.0.0.1/payments").password == "hunter2"


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"sink": {"address": f"{HOST}/x"}}, r"needs a \[source\]"),
        ({"source": {}}, "needs the address"),
        ({"source": {"address": f"{HOST}/x", "bach": 5}}, "'bach'"),
        ({"source": {"address": f"{HOST}/x", "batch": 0}}, "batch must be"),
        ({"source": {"address": f"{HOST}/x"}, "labels": {"address": f"{HOST}/y"}}, "needs the setting id"),
        ({"source": {"address": f"{HOST}/x"}, "sink": {"address": f"{HOST}/y", "only": "x"}}, "only must be"),
    ],
)
def test_feed_with_invalid_topic_settings_raises(tables, message):
    with pytest.raises(ParameterError, match=message):
        split_settings({**SETTINGS, **tables})
