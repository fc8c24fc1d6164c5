"""``steelyard fit``, ``forget`` and ``verify``: learn the rows of a table, and remove rows from a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from steelyard.cli import files
from steelyard.cli import options as opt
from steelyard.cli.files import IN_FILE, OUT_FILE
from steelyard.cli.options import ColumnOptions
from steelyard.cli.output import emit_facts, emit_text, print_message, print_status
from steelyard.cli.registry import make_models, parse_settings
from steelyard.exceptions import ParameterError

if TYPE_CHECKING:
    from steelyard.tables import TableModel
    from steelyard.tables.columns import Columns
    from steelyard.tables.databases import DatabaseSource

_ALLOWED_WITH_CONTINUE = {"source", "out", "base", "query", "weight", "how", "chunk", "limit", "as_json"}


@opt.command("fit")
def fit_command(
    source: str = opt.argument(),
    target: str | None = opt.target("Label column; required unless --continue is given."),
    out: Path | None = opt.out("Output file for the model."),
    base: Path | None = opt.option(
        "Saved model to train further.", "MODEL", type=IN_FILE, names="--continue"
    ),
    query: str | None = opt.query,
    weight: str | None = opt.option("Database column with the weight of each row.", "COL"),
    how: str = opt.how,
    show: str | None = opt.option(
        "Print the SELECT statements that compute the sums, optionally in another SQL dialect, and learn "
        "nothing.",
        "[DIALECT]",
        is_flag=False,
        flag_value="",
    ),
    model_name: str | None = opt.model(
        multiple=False, peers=False, note=" Default: auto; for a database: proximal."
    ),
    settings: tuple[str, ...] = opt.model_settings,
    seed: int = opt.seed,
    columns: ColumnOptions = opt.columns,
    as_json: bool = opt.as_json,
) -> None:
    """Learn all rows of SOURCE in one pass with bounded memory, and save the model.

    SOURCE is a file, - for standard input, or a database table: duckdb:///shop.db?table=payments,
    sqlite:///..., postgresql://... . With few columns the sums are computed inside the database and no row
    leaves it; missing values in a database are refused unless --missing is given. After an error nothing is
    saved.
    """
    from steelyard.tables import TableEncoder, TableModel
    from steelyard.tables.databases import open_database
    from steelyard.tables.source import is_address

    given = {"--query": query, "--weight": weight, "--show": show, "--how": None if how == "auto" else how}
    if not is_address(source) and (name := next((n for n, x in given.items() if x is not None), None)):
        raise click.UsageError(f"{name} needs a database, but SOURCE is not the address of a database.")
    if target is None and (base is None or show is not None):
        raise click.UsageError("Missing option '--target', the label column.")
    if show is not None:
        assert target is not None
        _print_queries(open_database(source, query), target, columns, weight, show)
        return
    if out is None:
        raise click.UsageError("Missing option '-o', the output file for the model.")
    opened = files.open_source(source, query)
    if base is not None:
        _check_options_with_continue()
        model = files.load_table_model(base)
    else:
        assert target is not None
        # The default for databases is proximal, because the database can compute its sums.
        model_name = model_name or ("proximal" if is_address(source) else "auto")
        (learner,) = make_models([model_name], parse_settings(settings), seed).values()
        files.check_can_be_saved(learner, model_name)
        goal = getattr(learner, "threshold", None)
        if isinstance(goal, Mapping) and "alarms_per_day" in goal and columns.time is None:
            raise click.UsageError("--set threshold=alarms_per_day=... needs --time, the column of times.")
        model = TableModel(learner, TableEncoder(_missing(columns, source)), target, columns.time)
    before = model.learned()
    if is_address(source) and columns.limit is None and columns.time is None:
        from steelyard.sql.learning import learn

        rows = opened if query is not None else open_database(source)
        learn(model, rows, _columns_of(model, columns, weight), weight=weight, how=how)
        n_rows = model.history[-1]["rows"]
    elif base is not None:
        n_rows = model.learn(model.open(opened, labelled=True, chunk=columns.chunk, limit=columns.limit))
    else:
        stream = files.open_table(opened, model.target, columns)
        model.encoder = stream.encoder
        n_rows = model.learn(stream)
    if (earlier := before.get(model.history[-1].get("id", ""))) is not None:
        print_message(
            f"note: the same rows were learned before from {earlier['source']}; they now count twice."
        )
    emit_facts({"model": str(out), "learned": n_rows, **files.summary_of(model)}, as_json=as_json)
    files.save_model(model, out)
    print_status(f"learned {n_rows:,} rows; wrote {out}")


def _missing(columns: ColumnOptions, source: str | None) -> str:
    """Return the treatment of missing values. For databases the default is "refuse", needed for push-down."""
    from steelyard.tables.source import is_address

    is_default = click.get_current_context().get_parameter_source("missing") is ParameterSource.DEFAULT
    is_database = source is None or is_address(source)
    return "refuse" if is_default and is_database else columns.missing


def _columns_of(model: TableModel, columns: ColumnOptions, weight: str | None) -> Columns:
    """Return the columns of a saved model or, for a new model, the columns that the options define."""
    from steelyard.tables.columns import Columns

    if model.encoder.is_fitted:
        return model.encoder.roles(model.target)
    drop = (*columns.drop, *(() if weight is None else (weight,)))
    return Columns(model.target, None, columns.features or None, drop, columns.categorical)


def _print_queries(
    rows: DatabaseSource, target: str, columns: ColumnOptions, weight: str | None, dialect: str
) -> None:
    """Print the SELECT statements that compute the sums of a database table."""
    from steelyard.sql.learning import queries_of
    from steelyard.tables import TableEncoder, TableModel

    encoder = TableEncoder(_missing(columns, None))
    chosen = _columns_of(TableModel(None, encoder, target), columns, weight)
    for text in queries_of(rows, chosen, encoder, weight=weight, dialect=dialect or None):
        emit_text(f"{text};\n\n")


def _check_options_with_continue() -> None:
    """Raise a usage error for options that have no effect on a saved model."""
    context = click.get_current_context()
    for option in context.command.params:
        given = context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if given and option.name not in _ALLOWED_WITH_CONTINUE:
            raise click.UsageError(
                f"{option.opts[0]} cannot be changed with --continue: columns and parameters come from the "
                "saved model."
            )


@opt.command("forget")
def forget_command(
    model: Path = opt.argument(type=IN_FILE),
    rows: str = opt.argument(),
    out: Path | None = opt.out("Output file; the default replaces MODEL."),
    again: bool = opt.flag("Forget rows again that were learned more than once."),
    certificate: Path | None = opt.option(
        "Write a JSON certificate, for `steelyard verify`.", "FILE", type=OUT_FILE
    ),
    as_json: bool = opt.as_json,
) -> None:
    """Remove the labelled ROWS (a table) from MODEL, as if they had never been learned.

    Either all rows are removed or none. The printed receipt contains the id and the number of the removed
    rows and the remaining class counts. With a certificate, anyone who has the remaining rows can fit a model
    to them and compare the digests (`steelyard verify`).
    """
    loaded, path = files.load_table_model(model), out or model
    if certificate is not None and not hasattr(loaded.estimator, "certify_forget"):
        raise ParameterError(
            f"--certificate: a {type(loaded.estimator).__name__} has no digest that others could verify.",
            hint="without --certificate the rows are forgotten, and the receipt states what is covered; a "
            "model of `steelyard fit --model proximal` issues certificates",
        )
    before = files.summary_of(loaded)["classes"]
    if certificate is None:
        claim = None
        loaded.forget(rows, again=again)
        files.save_model(loaded, path)
    else:
        claim = loaded.forget_certified(rows, again=again)
        with files.rollback_on_error(certificate, claim.to_json() + "\n"):
            files.save_model(loaded, path)
        print_status(f"wrote the certificate to {certificate}")
    print_status(f"forgot {loaded.history[-1]['rows']:,} rows; wrote {path}")
    receipt = _receipt(loaded, before, path)
    if claim is not None:
        receipt |= {"digest before": claim.digest_before, "digest after": claim.digest_after}
    emit_facts(receipt, as_json=as_json)


def _receipt(model: TableModel, before: Any, path: Path) -> dict[str, Any]:
    """Return id, number, source and time of the forgotten rows, and a summary of the model."""
    from steelyard.base import forgetting_scope

    entry = model.history[-1]
    after = files.summary_of(model)
    receipt = {"model": str(path), "forgot": entry["rows"]}
    receipt |= {name: entry[name] for name in ("id", "source", "when")}
    if isinstance(before, dict):
        removed = {label: n - after["classes"].get(label, 0.0) for label, n in before.items()}
        receipt["forgot by class"] = {label: n for label, n in removed.items() if n}
    receipt["complete"], receipt["covers"] = forgetting_scope(model.estimator)
    return {**receipt, **after}


@opt.command("verify")
def verify_command(
    certificate: Path = opt.argument(type=IN_FILE),
    sources: tuple[str, ...] = opt.option(
        "Table of the remaining rows.", "ROWS", multiple=True, required=True, names="--against"
    ),
    as_json: bool = opt.as_json,
) -> None:
    """Learn the remaining rows from scratch, with the quantizer of CERTIFICATE, and compare digests.

    The exit code is 1 if the digests differ: the certified model has not learned exactly these rows.
    """
    from steelyard.proximal import Certificate
    from steelyard.tables import TableModel

    claim = Certificate.from_json(certificate.read_bytes())
    model = TableModel.of_certificate(claim)
    n_rows = sum(model.learn(model.open(source, labelled=True)) for source in sources)
    digest = model.estimator.digest()
    holds = digest == claim.digest_after
    facts = {
        "holds": holds,
        "rows": n_rows,
        "rows expected": sum(count for _, count in claim.left),
        "digest": digest,
        "digest certified": claim.digest_after,
        "forgotten": dict(claim.forgotten),
        "when": claim.when,
    }
    emit_facts(facts, as_json=as_json)
    if not holds:
        raise click.exceptions.Exit(1)
