"""Live feeds, bad rows and reproducible runs of ``steelyard stream``."""

from __future__ import annotations

import array
import fcntl
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import termios
import threading
import time

import numpy as np
import pandas as pd
import pytest

import steelyard
from steelyard.cli import main
from steelyard.cli.registry import make_models
from steelyard.tables import TableModel, open_stream
from tests.runner import cli_runner

COMMAND = [sys.executable, "-c", "from steelyard.cli import main; main(prog_name='steelyard')", "stream", "-"]


@pytest.fixture
def run():
    return lambda *arguments, **options: cli_runner().invoke(main, [str(a) for a in arguments], **options)


def _lines(n, begin=0):
    return b"".join(b"%d,%d\n" % (i * 7 % 13, i * 7 % 13 > 8) for i in range(begin, begin + n))


class Feed:
    """A running command whose standard input is written by the test."""

    def __init__(self, *options):
        self.process = subprocess.Popen(
            [*COMMAND, "--target", "y", *map(str, options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        self._timer = threading.Timer(300, self.process.kill)
        self._timer.start()

    def send(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def is_read(self):
        """Return whether the command has read everything that was sent."""
        n_bytes = array.array("i", [0])
        fcntl.ioctl(self.process.stdin, termios.FIONREAD, n_bytes)
        return n_bytes[0] == 0

    def wait_for(self, condition, seconds=120):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, self.process.poll()
            time.sleep(0.05)

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)
        out, err = self.process.stdout.read(), self.process.stderr.read()
        self.process.wait()
        self._timer.cancel()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            pipe.close()
        return self.process.returncode, out, err


def _saved_rows(path):
    model = steelyard.load(path)
    assert isinstance(model, TableModel)
    return int(model.estimator.class_count_.sum())


def test_live_feed_interrupted_by_ctrl_c_has_learned_all_rows(tmp_path):
    """Rows are learned and saved while the feed is open, although they are far fewer than a chunk."""
    out = tmp_path / "m.steelyard"
    feed = Feed("--chunk", 1000, "--save", out, "--save-every", 10, "--json")
    feed.send(b"a,y\n" + _lines(40))
    feed.wait_for(out.exists)
    assert _saved_rows(out) <= 40
    feed.wait_for(lambda: _saved_rows(out) == 40)
    feed.send(_lines(25, 40))
    feed.wait_for(feed.is_read)  # the rows are not learned yet: they wait for a full chunk
    code, text, err = feed.interrupt()
    assert code == 130, err
    assert json.loads(text)["rows"] == 65
    assert _saved_rows(out) == 65


def test_live_feed_rows_are_learned_within_a_second(tmp_path):
    out = tmp_path / "m.steelyard"
    feed = Feed("--chunk", 1000, "--save", out, "--save-every", 1)
    feed.send(b"a,y\n" + _lines(30))
    feed.wait_for(out.exists)  # the command is running and waits for rows
    feed.wait_for(lambda: _saved_rows(out) == 30)
    delays = [np.inf]
    for begin in range(30, 40):  # only the shortest of ten delays is tested, because the machine may be busy
        if delays[-1] < 1.0:
            break
        begun = time.monotonic()
        feed.send(_lines(1, begin))
        feed.wait_for(lambda n=begin + 1: _saved_rows(out) == n)
        delays.append(time.monotonic() - begun)
    code, *_ = feed.interrupt()
    assert code == 130
    assert delays[-1] < 1.0


def test_gzip_standard_input_is_decompressed():
    packed = gzip.compress(b"a,y\n" + _lines(500))
    ended = subprocess.run(
        [*COMMAND, "--target", "y", "--json"], input=packed, capture_output=True, timeout=300, check=True
    )
    assert json.loads(ended.stdout)["rows"] == 500


def test_data_hash_of_pipe_equals_data_hash_of_file(tmp_path, run):
    content = b"a,y\n" + _lines(500)
    (tmp_path / "t.csv").write_bytes(content)
    from_file = json.loads(run("stream", tmp_path / "t.csv", "--target", "y", "--json").stdout)
    ended = subprocess.run(
        [*COMMAND, "--target", "y", "--json"], input=content, capture_output=True, timeout=300, check=True
    )
    assert (
        from_file["provenance"]["data"]["sha256"] == json.loads(ended.stdout)["provenance"]["data"]["sha256"]
    )


# -- bad rows -----------------------------------------------------------------------------------------


def _with_bad_rows(tmp_path, form):
    """Return a table of 3,000 rows with bad rows of every kind, and the line numbers of the bad rows."""
    rows = [{"a": float(i % 13), "b": float(i % 7), "y": int(i % 13 > 8)} for i in range(3000)]
    bad = {40: {"a": "oops"}, 41: {"b": "what"}, 900: {"a": "-"}, 2500: {"y": None}, 2999: {"b": "x"}}
    for row, cells in bad.items():
        rows[row] |= cells
    path = tmp_path / f"t.{form}"
    if form == "jsonl":
        lines = [json.dumps({k: v for k, v in row.items() if v is not None}) for row in rows]
        lines[1500] = "{broken"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path, sorted(row + 1 for row in [*bad, 1500])
    lines = [",".join("" if v is None else str(v) for v in row.values()) for row in rows]
    lines[1500] += ",surplus"
    path.write_text("\n".join(["a,b,y", *lines]) + "\n", encoding="utf-8")
    return path, sorted(row + 2 for row in [*bad, 1500])


@pytest.mark.parametrize("form", ["csv", "jsonl"])
@pytest.mark.parametrize("chunk", [7, 1000])
def test_skipped_bad_rows_are_counted_and_listed_with_line_numbers(tmp_path, form, chunk):
    path, lines = _with_bad_rows(tmp_path, form)
    stream = open_stream(path, "y", chunk=chunk, on_bad_row="skip")
    assert sum(len(part) for part in stream) == 2994
    assert stream.n_bad_rows == 6
    named = [re.search(r"line ([\d,]*\d)", text)[1].replace(",", "") for text in stream.bad_rows]
    assert sorted(map(int, named)) == lines


def test_same_bad_rows_are_skipped_with_and_without_pyarrow(tmp_path, monkeypatch):
    path, _ = _with_bad_rows(tmp_path, "csv")
    fast = open_stream(path, "y", on_bad_row="skip")
    X = np.concatenate([part.X for part in fast])
    for module in ("text_sources", "table_stream"):
        monkeypatch.setattr(f"steelyard.tables.{module}.has_pyarrow", lambda: False)
    exact = open_stream(path, "y", on_bad_row="skip")
    np.testing.assert_array_equal(np.concatenate([part.X for part in exact]), X)
    assert sorted(exact.bad_rows) == sorted(fast.bad_rows)


def test_stream_stops_at_bad_row_by_default_and_skips_on_request(tmp_path, run):
    path, _ = _with_bad_rows(tmp_path, "csv")
    stopped = run("stream", path, "--target", "y", "--json")
    assert stopped.exit_code == 1
    assert "line 42, column 'a': expected a number; got 'oops'" in stopped.stderr
    assert json.loads(stopped.stdout)["rows"] == 40
    skipped = run("stream", path, "--target", "y", "--json", "--on-bad-row", "skip")
    assert skipped.exit_code == 0, skipped.output
    document = json.loads(skipped.stdout)
    assert document["rows"] == 2994
    assert document["provenance"]["bad_rows"] == len(document["bad_rows"]) == 5
    assert document["unlabelled"]["rows"] == 1
    assert "skipped 5 rows:" in skipped.stderr


# -- reproducible runs --------------------------------------------------------------------------------


def test_report_every_writes_report_during_the_run(tmp_path, run, monkeypatch):
    written = []
    monkeypatch.setattr("steelyard.report.write_report", lambda result, path: written.append(result.n_rows))
    frame = pd.DataFrame({"a": np.arange(1000.0) % 13, "y": np.arange(1000) % 13 > 8})
    frame.to_csv(tmp_path / "t.csv", index=False)
    result = run(
        "stream", tmp_path / "t.csv", "--target", "y", "--report", tmp_path / "r.html", "--report-every", 300
    )
    assert result.exit_code == 0, result.output
    assert written == [300, 600, 900, 1000]
    assert run("stream", tmp_path / "t.csv", "--target", "y", "--save-every", 3).exit_code == 2


def test_stream_json_has_provenance(tmp_path, run):
    (tmp_path / "t.csv").write_bytes(b"a,y\n" + _lines(400))
    model = ["--model", "proximal", "--set", "C=2"]
    arguments = ["stream", tmp_path / "t.csv", "--target", "y", "--seed", 3, *model, "--json"]
    provenance = json.loads(run(*arguments).stdout)["provenance"]
    words = f"stream {tmp_path / 't.csv'} --target y --model proximal --set C=2 --seed 3 --json"
    assert provenance["command"].endswith(words)
    assert provenance["version"] == steelyard.__version__
    assert (provenance["seed"], provenance["rows"], provenance["chunk"]) == (3, 400, 100)
    assert provenance["parameters"]["proximal"]["C"] == "2"
    assert len(provenance["data"]["sha256"]) == 64
    assert provenance["seconds"] > 0


def test_seed_replaces_default_random_state():
    assert make_models(["auto"], {}, 7)["auto"].random_state == 7
    assert make_models(["auto"], {"random_state": 3}, 7)["auto"].random_state == 3


def test_stream_seed_makes_random_models_reproducible(tmp_path, run):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(800, 3)), columns=list("abc"))
    frame["y"] = (frame["a"] + rng.normal(size=800) > 1).astype(int)
    frame.to_csv(tmp_path / "t.csv", index=False)
    base = ["stream", tmp_path / "t.csv", "--target", "y", "--model", "sklearn:linear_model.SGDClassifier"]
    runs = [json.loads(run(*base, "--seed", seed, "--json").stdout)["confusion"] for seed in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]
    again = [json.loads(run(*base, "--json").stdout)["confusion"] for _ in range(2)]
    assert again[0] == again[1]
