"""``steelyard cube``: build, ask and compare."""

from __future__ import annotations

import json

import duckdb
import pytest

from steelyard import load
from steelyard.cli import main
from tests.runner import cli_runner
from tests.sql.engines import fill
from tests.sql.test_cube import shops


def run(*arguments, code=0):
    result = cli_runner().invoke(main, list(map(str, arguments)))
    assert result.exit_code == code, result.output + result.stderr
    return result


@pytest.fixture
def csv(tmp_path):
    frame = shops(1200)
    frame["country"] = frame["country"].replace("NZ", "<b>NZ</b>")
    frame.to_csv(tmp_path / "shops.csv", index=False)
    return tmp_path / "shops.csv"


def built(csv, tmp_path, *options):
    out = tmp_path / "shops.cube"
    result = run(
        "cube", "build", csv, "--by", "country", "--by", "channel", "--target", "fraud",
        "--time", "day", "-o", out, "--json", *options,
    )  # fmt: skip
    return out, json.loads(result.stdout)


def test_cube_ask_command_writes_model_of_slice(csv, tmp_path):
    out, facts = built(csv, tmp_path)
    assert facts["rows"] == 1200
    model = tmp_path / "de.steelyard"
    result = run(
        "cube", "ask", out, "--where", "country=DE", "--where", "country=FR", "--since", "2026-05-02",
        "--until", "2026-05-04", "-o", model, "--json",
    )  # fmt: skip
    expected = load(out).model(country=["DE", "FR"], since="2026-05-02", until="2026-05-04")
    assert (
        json.loads(result.stdout)["digest"] == expected.estimator.digest() == load(model).estimator.digest()
    )
    rows = tmp_path / "rows.csv"
    shops(50).drop(columns=["country", "channel", "day"]).to_csv(rows, index=False)
    assert json.loads(run("evaluate", model, rows, "--json").stdout)["rows"] == 50


def test_cube_compare_report_escapes_slice_names(csv, tmp_path):
    out, _ = built(csv, tmp_path)
    page = tmp_path / "slices.html"
    result = run("cube", "compare", out, "--by", "country", "--by", "channel", "--report", page, "--json")
    slices = json.loads(result.stdout)["slices"]
    assert len(slices) == 6
    assert all(0.0 <= entry["auc"] <= 1.0 for entry in slices)
    html = page.read_text(encoding="utf-8")
    assert "<b>NZ</b>" not in html
    assert "&lt;b&gt;NZ&lt;/b&gt;" in html
    assert "http://" not in html
    assert "https://" not in html
    assert run("cube", "compare", out, "--by", "country").stdout.count("\n") == 4


def test_pushdown_and_streaming_build_same_cube_and_small_slices_are_shrunk(tmp_path):
    file = tmp_path / "shop.db"
    with duckdb.connect(str(file)) as connection:
        fill(connection, "pay", shops(900).drop(columns="day"))
    address = f"duckdb:///{file}?table=pay"
    cubes = []
    for how in ("pushed", "streamed"):
        out = tmp_path / f"{how}.cube"
        run("cube", "build", address, "--by", "country", "--target", "fraud", "--how", how, "-o", out)
        cubes.append(load(out))
    assert cubes[0].model(country="DE").estimator.digest() == cubes[1].model(country="DE").estimator.digest()
    out = tmp_path / "folds.cube"
    run("cube", "build", address, "--by", "country", "--target", "fraud", "--folds", 5, "-o", out)
    run("cube", "ask", out, "--where", "country=DE", "--shrink", "auto")
    run("cube", "ask", out, "--where", "country=DE", "--borrow", "30")


def test_cube_commands_with_invalid_arguments_give_error_messages(csv, tmp_path):
    out, _ = built(csv, tmp_path)
    assert "did you mean 'country'" in run("cube", "ask", out, "--where", "countri=DE", code=1).stderr
    assert (
        "there are no rows in this slice" in run("cube", "ask", out, "--where", "country=XX", code=1).stderr
    )
    assert "COL=VALUE" in run("cube", "ask", out, "--where", "country", code=2).stderr
    assert "expected a number" in run("cube", "ask", out, "--shrink", "some", code=1).stderr
    model = tmp_path / "m.steelyard"
    run("cube", "ask", out, "-o", model)
    assert "not a cube" in run("cube", "compare", model, code=1).stderr
