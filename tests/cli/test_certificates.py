"""``steelyard forget --certificate`` and ``steelyard verify``."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from steelyard.cli.app import main


@pytest.fixture
def table(rng):
    n = 600
    amounts, countries = rng.gamma(2.0, 30.0, n).round(2), rng.choice(["at", "de", "fr"], n)
    frame = pd.DataFrame({"amount": amounts, "country": countries})
    frame["target"] = np.where(frame["amount"] + 20.0 * (frame["country"] == "fr") > 90.0, "fraud", "ok")
    return frame


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_verify_command_accepts_remaining_rows_and_rejects_other_rows(table, tmp_path):
    for name, part in (("all", table), ("removed", table[:80]), ("rest", table[80:]), ("less", table[81:])):
        part.to_csv(tmp_path / f"{name}.csv", index=False)
    model, certificate = tmp_path / "model.sy", tmp_path / "certificate.json"
    made = run("fit", tmp_path / "all.csv", "--model", "proximal", "--target", "target", "-o", model)
    assert made.exit_code == 0, made.output
    done = run("forget", model, tmp_path / "removed.csv", "--certificate", certificate, "--json")
    assert done.exit_code == 0, done.output
    after = json.loads(certificate.read_text())["digest_after"]
    shown = run("inspect", model, "--json")
    assert json.loads(shown.stdout)["digest"] == after
    holds = run("verify", certificate, "--against", tmp_path / "rest.csv", "--json")
    assert holds.exit_code == 0, holds.output
    assert json.loads(holds.stdout)["holds"] is True
    fails = run("verify", certificate, "--against", tmp_path / "less.csv")
    assert fails.exit_code == 1
    assert after in fails.output


def test_forget_with_stream_classifier_gives_receipt_but_no_certificate(table, tmp_path):
    table.to_csv(tmp_path / "all.csv", index=False)
    table[:20].to_csv(tmp_path / "removed.csv", index=False)
    model = tmp_path / "model.sy"
    assert (
        run("fit", tmp_path / "all.csv", "--model", "auto", "--target", "target", "-o", model).exit_code == 0
    )
    before = model.read_bytes()
    refused = run("forget", model, tmp_path / "removed.csv", "--certificate", tmp_path / "c.json")
    assert refused.exit_code == 1
    assert "a StreamClassifier has no digest that others could verify" in refused.output
    assert model.read_bytes() == before
    receipt = json.loads(run("forget", model, tmp_path / "removed.csv", "--json").stdout)
    assert receipt["complete"] is False
    assert "weights and thresholds may still depend" in receipt["covers"]
