"""Commands on database tables: results equal those on files, and only new tables are written."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys

import duckdb
import numpy as np
import pandas as pd
import pytest
import sqlglot

from steelyard import load
from steelyard.cli import main
from tests.runner import cli_runner
from tests.sql.engines import ENGINES, fill, payments

FRAME = payments(900).drop(columns=['o"dd %s'])


def run(*arguments, code=0):
    result = cli_runner().invoke(main, list(map(str, arguments)))
    assert result.exit_code == code, result.output + result.stderr
    return result


@pytest.fixture(params=ENGINES)
def shop(request, tmp_path):
    """Return the address of a database with a table ``pay``, and a function that runs a query."""
    if request.param == "postgres":
        import psycopg

        address = request.getfixturevalue("postgres")
        with psycopg.connect(address, autocommit=True) as connection:
            fill(connection, "pay", FRAME)
        opened = lambda: psycopg.connect(address, autocommit=True)  # noqa: E731
    else:
        file = tmp_path / "shop.db"
        connect = sqlite3.connect if request.param == "sqlite" else duckdb.connect
        opened = lambda: connect(str(file))  # noqa: E731
        connection = opened()
        fill(connection, "pay", FRAME)
        connection.close()
        address = f"{request.param}:///{file}"

    def query_frame(text):
        with contextlib.closing(opened()) as connection:
            cursor = connection.cursor()
            cursor.execute(text)
            names = [column[0] for column in cursor.description]
            return pd.DataFrame(cursor.fetchall(), columns=names)

    return address, query_frame


def with_table(address, table="pay"):
    return f"{address}{'&' if '?' in address else '?'}table={table}"


@pytest.fixture
def csv(tmp_path):
    FRAME.to_csv(tmp_path / "pay.csv", index=False)
    return tmp_path / "pay.csv"


@pytest.mark.parametrize("how", ["pushed", "streamed", "auto"])
def test_fit_on_database_table_equals_fit_on_file(shop, csv, tmp_path, how):
    run("fit", csv, "--target", "kind", "--model", "proximal", "-o", tmp_path / "file.steelyard")
    address = with_table(shop[0])
    run("fit", address, "--target", "kind", "--how", how, "-o", tmp_path / "db.steelyard")
    models = [load(tmp_path / name).estimator for name in ("file.steelyard", "db.steelyard")]
    assert models[0].digest() == models[1].digest()


def test_fit_stream_evaluate_and_predict_accept_a_query(shop, tmp_path):
    out = tmp_path / "m.steelyard"
    query = "SELECT * FROM pay WHERE amount < 50"
    n_rows = int((FRAME["amount"] < 50).sum())
    result = run("fit", shop[0], "--query", query, "--target", "kind", "-o", out, "--json")
    assert json.loads(result.stdout)["learned"] == n_rows
    result = run("stream", shop[0], "--query", query, "--target", "kind", "--json")
    assert json.loads(result.stdout)["rows"] == n_rows
    result = run("evaluate", out, shop[0], "--query", query, "--json")
    assert json.loads(result.stdout)["rows"] == n_rows
    assert len(run("predict", out, shop[0], "--query", query, "--json").stdout.splitlines()) == n_rows


def test_fit_continue_learns_rows_from_a_database(shop, tmp_path):
    first, second, complete = (tmp_path / f"{name}.steelyard" for name in ("first", "second", "complete"))
    run("fit", shop[0], "--query", "SELECT * FROM pay WHERE amount < 50", "--target", "kind", "-o", first)
    rest = "SELECT * FROM pay WHERE amount >= 50"
    run("fit", shop[0], "--query", rest, "--continue", first, "--how", "pushed", "-o", second)
    run("fit", with_table(shop[0]), "--target", "kind", "-o", complete)
    assert (
        load(second).estimator.statistics_.n_rows == load(complete).estimator.statistics_.n_rows == len(FRAME)
    )


def test_predict_into_writes_new_table_and_leaves_others_unchanged(shop, tmp_path):
    model = tmp_path / "m.steelyard"
    address, query_frame = shop
    run("fit", with_table(address), "--target", "kind", "-o", model)
    before = query_frame("SELECT * FROM pay")
    run("predict", model, with_table(address), "--into", "answers", "--keep", "card")
    written = query_frame('SELECT * FROM answers ORDER BY "row"')
    expected = [
        json.loads(line) for line in run("predict", model, with_table(address), "--json").stdout.splitlines()
    ]
    assert written["label"].tolist() == [line["label"] for line in expected]
    np.testing.assert_array_equal(written["score_fraud"], [line["score_fraud"] for line in expected])
    assert written["card"].tolist() == FRAME["card"].tolist()
    second = run("predict", model, with_table(address), "--into", "answers", code=1)
    assert "answers" in second.stderr
    assert "exist" in second.stderr
    run("predict", model, with_table(address), "--into", "pay", code=1)
    pd.testing.assert_frame_equal(query_frame("SELECT * FROM pay"), before)
    assert len(query_frame("SELECT * FROM answers")) == 900


def test_predict_into_existing_table_prints_one_error_line(tmp_path):
    with duckdb.connect(str(tmp_path / "shop.db")) as connection:
        fill(connection, "pay", FRAME)
    address = f"duckdb:///{tmp_path / 'shop.db'}?table=pay"
    run("fit", address, "--target", "kind", "-o", tmp_path / "m.steelyard")
    arguments = ["predict", tmp_path / "m.steelyard", address, "--into", "pay", "--chunk", "10"]
    command = [sys.executable, "-m", "steelyard", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "already exists" in done.stderr


def test_predict_into_leaves_no_table_after_error(shop, tmp_path):
    model = tmp_path / "m.steelyard"
    address, query_frame = shop
    run("fit", with_table(address), "--target", "kind", "-o", model)
    amount = "CASE WHEN amount > 60 THEN NULL ELSE amount END AS amount"
    holes = f'SELECT {amount}, "n items", known, country, card FROM pay'
    result = run("predict", model, address, "--query", holes, "--into", "answers", "--chunk", 10, code=1)
    assert "column 'amount'" in result.stderr
    with pytest.raises(Exception, match=r"(?i)answers"):
        query_frame("SELECT * FROM answers")


def test_predict_as_sql_equals_predict(shop, tmp_path):
    model = tmp_path / "m.steelyard"
    address, query_frame = shop
    run("fit", with_table(address), "--target", "kind", "-o", model)
    dialect = address.partition(":")[0].replace("postgresql", "postgres")
    text = run("predict", model, with_table(address), "--as-sql", dialect).stdout
    answers = query_frame(text)
    lines = [
        json.loads(line) for line in run("predict", model, with_table(address), "--json").stdout.splitlines()
    ]
    assert answers["label"].tolist() == [line["label"] for line in lines]
    sign = "score_" + str(load(model).estimator.classes_[1])
    np.testing.assert_allclose(answers["score"], [line[sign] for line in lines], rtol=1e-12, atol=1e-12)
    assert "your_table" in run("predict", model, "--as-sql", "bigquery").stdout


def test_fit_show_prints_sql_and_does_not_learn(shop, tmp_path):
    result = run("fit", with_table(shop[0]), "--target", "kind", "--show")
    texts = [text for text in result.stdout.split(";\n") if text.strip()]
    assert len(texts) == 4  # numbers, two categorical columns, and the pair of them
    assert 'SUM("n items" * "n items")' in texts[0]
    for dialect in ("bigquery", "snowflake", "clickhouse", "spark"):
        shown = run("fit", with_table(shop[0]), "--target", "kind", "--show", dialect).stdout
        assert all(sqlglot.parse_one(text, dialect=dialect) for text in shown.split(";\n") if text.strip())
    assert not list(tmp_path.glob("*.steelyard"))


def test_database_options_without_database_are_usage_errors(csv, tmp_path):
    out = tmp_path / "m.steelyard"
    for option in (["--query", "SELECT 1"], ["--weight", "w"], ["--show"], ["--how", "pushed"]):
        result = run("fit", csv, "--target", "kind", "-o", out, *option, code=2)
        assert "database" in result.stderr
    run("fit", csv, "--target", "kind", code=2)
    run("fit", csv, "--target", "kind", "-o", out)
    assert "--into needs a database" in run("predict", out, csv, "--into", "t", code=2).stderr
    run("predict", out, code=2)


def test_unknown_table_or_dialect_error_lists_alternatives(shop, tmp_path):
    result = run("fit", with_table(shop[0], "paj"), "--target", "kind", "-o", tmp_path / "m", code=1)
    assert "did you mean 'pay'?" in result.stderr
    result = run("fit", with_table(shop[0]), "--target", "kind", "--show", "oracle", code=1)
    assert "bigquery" in result.stderr
