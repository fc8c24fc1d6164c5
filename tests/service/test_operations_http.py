"""Operations over HTTP: scopes, request ids, audit log, rates, key expiry and rotation, certificates."""

from __future__ import annotations

import datetime as dt
import signal
import socket
import ssl
import time

import httpx
import pytest

from steelyard import Client
from steelyard.cli import main
from steelyard.exceptions import ParameterError
from steelyard.service import SQLiteStore, Writer
from steelyard.service.errors import QueueFullError
from steelyard.service.http import make_app
from steelyard.service.http.keys import Keys, RateLimits
from tests.runner import cli_runner
from tests.service.data import SPEC, Clock, records
from tests.service.server import serving
from tests.service.test_wire import MODEL, is_problem


def run(*arguments):
    return cli_runner().invoke(main, [str(argument) for argument in arguments])


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture
def http(tmp_path):
    with serving(make_app(Writer(SQLiteStore(tmp_path / "store.db")))) as client:
        client.put(MODEL, json=SPEC)
        client.post(f"{MODEL}/learn", json={"rows": records(60)}, headers={"idempotency-key": "first"})
        yield client


@pytest.fixture
def client(http):
    with Client(str(http.base_url)) as client:
        yield client


def test_operations_work_over_http(http, client):
    rows = records(60)
    answer = client.label("payments", {"r1": 1 - rows[1]["fraud"], "x": 0}, correct=True)
    assert (answer["corrected"], answer["unknown"]) == (1, ["x"])
    assert client.challenge("payments", {"learner": {"class": "ProximalSVC", "C": 0.1}})["version"] == 3
    assert client.challenger("payments")["spec"]["learner"]["C"] == 0.1
    assert client.promote("payments")["spec"]["learner"]["C"] == 0.1
    assert "version" in client.end_challenger("payments")
    is_problem(http.get(f"{MODEL}/challenger"), 404)
    client.learn("payments", records(5, first=100), key="late")
    assert client.forget("payments", batch="late")["forgotten"] == 5
    soon = {"since": "2020-01-01", "until": "2100-01-01"}
    assert client.forget("payments", learned=soon)["forgotten"] == 60
    assert client.rename("payments", "cards")["former_name"] == "payments"
    is_problem(http.get(MODEL), 404)
    assert client.delete("cards")["deleted"] == "cards"
    assert client.models() == []
    verbs = [entry["verb"] for entry in client.audit(limit=500)]
    expected = "delete rename forget forget learn challenge promote challenge label learn put"
    assert " ".join(verbs) == expected
    assert [e["verb"] for e in client.audit(model="cards")] == ["delete"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", f"{MODEL}/rename", {"name": 3}, 422),
        ("POST", f"{MODEL}/rename", {"name": "a/b"}, 422),
        ("POST", f"{MODEL}/forget", {"learned": {"from": "2020-01-01"}}, 422),
        ("POST", f"{MODEL}/forget", {"batch": 3}, 422),
        ("POST", f"{MODEL}/forget", {"batch": "never"}, 404),
        ("POST", f"{MODEL}/labels", {"labels": {"r1": 1}, "correct": "yes"}, 422),
        ("POST", f"{MODEL}/quarantine", {"learn": ["a"]}, 422),
        ("POST", f"{MODEL}/quarantine", {"learn": [1], "discard": [2]}, 422),
        ("POST", f"{MODEL}/quarantine", {"discard": [77]}, 404),
        ("PUT", f"{MODEL}/challenger", {"target": "amount"}, 422),
        ("PUT", f"{MODEL}/challenger", {"replay": 3}, 422),
        ("POST", f"{MODEL}/promote", None, 404),
        ("GET", "/v1/audit?limit=x", None, 422),
        ("GET", "/v1/audit?colour=x", None, 422),
    ],
)
def test_invalid_operation_is_refused_and_changes_nothing(http, method, path, body, status):
    digest = http.get(MODEL).json()["digest"]
    is_problem(http.request(method, path, json=body), status)
    assert http.get(MODEL).json()["digest"] == digest


def test_quarantine_works_over_http(http):
    http.put(MODEL, json={**SPEC, "ranges": {"amount": [-9, 9]}, "violations": "quarantine"})
    rows = records(3, first=100)
    rows[1]["amount"] = 1e9
    answer = http.post(f"{MODEL}/learn", json={"rows": rows}).json()
    assert (answer["learned"], answer["quarantined"]) == (2, 1)
    (waiting,) = http.get(f"{MODEL}/quarantine").json()["rows"]
    assert (waiting["row"]["amount"], waiting["row"]["row"]) == (1e9, "r101")
    assert http.post(f"{MODEL}/quarantine", json={"discard": [waiting["number"]]}).json()["released"] == 1
    assert http.get(f"{MODEL}/quarantine").json()["rows"] == []


def test_request_id_is_taken_from_trace_or_header_or_generated(http):
    headers = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01", "x-request-id": "mine"}
    assert http.get(MODEL, headers=headers).headers["x-request-id"] == TRACE
    assert http.get(MODEL, headers={"x-request-id": "mine"}).headers["x-request-id"] == "mine"
    for wrong in ({"traceparent": f"00-{'0' * 32}-00f067aa0ba902b7-01"}, {"x-request-id": "a b"}, {}):
        new = [http.get(MODEL, headers=wrong).headers["x-request-id"] for _ in range(2)]
        assert len(new[0]) == 32
        assert new[0] != new[1]
    http.post(f"{MODEL}/learn", json={"rows": records(1, first=99)}, headers=headers)
    (entry,) = http.get("/v1/audit", params={"request_id": TRACE}).json()["entries"]
    assert (entry["verb"], entry["outcome"], entry["rows"], entry["address"]) == (
        "learn",
        "done",
        1,
        "127.0.0.1",
    )


def test_audit_log_records_refused_requests_of_known_keys_only(tmp_path):
    path = tmp_path / "keys.toml"
    admin = Keys.add(path, ["admin"])[1]
    reader, token = Keys.add(path, ["predict"], ["payments"])
    with serving(make_app(Writer(SQLiteStore(tmp_path / "s.db")), keys=Keys(path))) as http:
        header = {"authorization": f"Bearer {admin}"}
        http.put(MODEL, json=SPEC, headers=header)
        for who in (token, "sy_nobody_secret"):
            http.post(f"{MODEL}/learn", json={"rows": records(1)}, headers={"authorization": f"Bearer {who}"})
        http.post(f"{MODEL}/learn", json={"rows": records(1)}, headers=header)
        entries = http.get("/v1/audit", headers=header).json()["entries"]
        refused = [e for e in entries if e["outcome"] == "status 403"]
        assert [(e["key"], e["model"], e["verb"]) for e in refused] == [(reader.id, "payments", "post learn")]
        assert len(entries) == 3
        for query in ("", "?model=payments"):
            assert (
                http.get(f"/v1/audit{query}", headers={"authorization": f"Bearer {token}"}).status_code == 403
            )


def test_rate_limit_allows_a_burst_and_then_the_given_rate():
    clock = Clock(0.0)
    rates = RateLimits(clock)
    for _ in range(3):
        rates.check("key", "a", 3.0)
    rates.check("key", "b", 3.0)
    with pytest.raises(QueueFullError, match="3 requests per second"):
        rates.check("key", "a", 3.0)
    clock.now = 1.0 / 3.0 + 1e-9
    rates.check("key", "a", 3.0)
    with pytest.raises(QueueFullError):
        rates.check("key", "a", 3.0)


def test_exceeded_rate_limit_of_key_or_model_gives_429(tmp_path):
    path = tmp_path / "keys.toml"
    slow = Keys.add(path, ["predict"], rate=0.001)[1]
    admin = Keys.add(path, ["admin"])[1]
    with serving(make_app(Writer(SQLiteStore(tmp_path / "s.db")), keys=Keys(path))) as http:
        header = {"authorization": f"Bearer {admin}"}
        http.put(MODEL, json={**SPEC, "quota": {"requests_per_second": 0.001}}, headers=header)
        answers = [http.get("/v1/models", headers={"authorization": f"Bearer {slow}"}) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 429]
        answers = [http.get(MODEL, headers=header) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 429]
        assert http.get("/v1/models", headers=header).status_code == 200


def test_rotated_key_expires_and_its_successor_has_the_same_rights(tmp_path):
    path = tmp_path / "keys.toml"
    key, token = Keys.add(path, ["learn"], ["payments"], "shop", expires=time.time() + 100, rate=5.0)
    new, successor = Keys.rotate(path, key.id, until=time.time() - 1)
    assert (new.scopes, new.models, new.note, new.rate) == (key.scopes, key.models, "shop", 5.0)
    keys = Keys(path)
    assert keys.find(token).has_expired(time.time())
    assert not keys.find(successor).has_expired(time.time())
    with serving(make_app(Writer(SQLiteStore(tmp_path / "s.db")), keys=keys)) as http:
        answer = http.get("/v1/models", headers={"authorization": f"Bearer {token}"})
        is_problem(answer, 401)
        assert "expired" in answer.json()["detail"]
    with pytest.raises(ParameterError, match="no key"):
        Keys.rotate(path, "nobody", until=0.0)
    with pytest.raises(ParameterError, match="rate"):
        Keys.add(path, ["learn"], rate=0.0)


def test_keys_and_audit_commands_work(tmp_path):
    keys, store = tmp_path / "k.toml", tmp_path / "s.db"
    added = run("serve", "keys", "add", "--keys", keys, "--scope", "learn", "--expires", "90d", "--rate", "9")
    key_id = added.stdout.split()[1]
    assert "expires" in added.stdout
    rotated = run("serve", "keys", "rotate", key_id, "--keys", keys, "--overlap", "1d")
    assert rotated.stdout.split()[1] != key_id
    assert run("serve", "keys", "list", "--keys", keys).stdout.count("learn") == 2
    assert run("serve", "keys", "add", "--keys", keys, "--scope", "learn", "--expires", "9").exit_code
    with serving(make_app(Writer(SQLiteStore(store)))) as http:
        http.put(MODEL, json=SPEC)
    assert "put" in run("serve", "--store", store, "audit").stdout
    assert run("serve", "--store", tmp_path / "none.db", "audit").exit_code


def certificate(folder, name):
    """Write a self-signed certificate for localhost and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + dt.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return made.serial_number


def test_tls_certificate_is_reloaded_on_sighup(tmp_path):
    from cryptography import x509

    from tests.service.processes import Process, until

    def shown():
        pem = ssl.get_server_certificate(("127.0.0.1", int(process.url.rpartition(":")[2])))
        return x509.load_pem_x509_certificate(pem.encode()).serial_number

    first = certificate(tmp_path, "first")
    files = ("--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem"))
    with Process(tmp_path / "s.db", *files) as process:
        assert shown() == first
        (tmp_path / "cert.pem").write_text("damaged")
        process.process.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        assert shown() == first
        second = certificate(tmp_path, "second")
        process.process.send_signal(signal.SIGHUP)
        until(lambda: shown() == second)
        with httpx.Client(verify=False, timeout=60) as client:
            assert client.get(process.url + "/health/live").status_code == 200


def test_serve_names_address_that_is_in_use_and_option_for_another(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run("serve", "--store", tmp_path / "store.db", "--port", port)
    assert result.exit_code == 1
    assert f"the service cannot listen at 127.0.0.1, port {port}: address already in use." in result.output
    assert "hint: choose a free port with --port (0 for any)" in " ".join(result.output.split())


def test_serve_names_store_whose_folder_does_not_exist(tmp_path):
    store = tmp_path / "missing" / "store.db"
    result = run("serve", "--store", store, "--port", 0)
    assert result.exit_code == 1
    assert result.output == f"Error: {store}: cannot be opened: No such file or directory.\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--tls-cert", "missing.pem"), "missing.pem: cannot be read: No such file or directory."),
        (("--tls-cert", "cert.pem", "--tls-key", "no.pem"), "no.pem: cannot be read: No such file"),
        (("--tls-cert", "text.pem"), "text.pem: the TLS certificate and its private key cannot be used"),
        (("--tls-cert", "cert.pem"), "cert.pem: the TLS certificate and its private key cannot be used"),
        (("--tls-cert", "cert.pem", "--tls-key", "other.pem"), "cannot be used: KEY_VALUES_MISMATCH"),
        (("--tls-key", "key.pem"), "--tls-key needs the certificate of the key: --tls-cert FILE."),
    ],
)
def test_serve_names_tls_file_that_cannot_be_used(arguments, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    certificate(tmp_path, "first")
    (tmp_path / "key.pem").rename(tmp_path / "other.pem")
    certificate(tmp_path, "second")
    (tmp_path / "text.pem").write_text("no certificate")
    result = run("serve", "--store", "s.db", "--port", 0, *arguments)
    assert result.exit_code == (2 if "--tls-cert" not in arguments else 1)
    assert expected in result.output
