"""``steelyard statistics``: write mergeable statistics of the rows on one machine."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli import options as opt
from steelyard.cli.files import IN_FILE, load_table_model, open_table, save_model, wrong_kind_error
from steelyard.cli.options import ColumnOptions
from steelyard.cli.output import emit_json, json_option, print_status
from steelyard.cli.registry import make_models, parse_settings
from steelyard.exceptions import ParameterError

if TYPE_CHECKING:
    from steelyard import RandomFeatures
    from steelyard.distributed.files import StatisticsPart
    from steelyard.tables import TableModel


@click.command("statistics", cls=opt.renamed({"--retire": "--forget"}))
@click.argument("data", required=False)
@opt.target("Label column; with --like, the label column of that file is used.")
@click.option(
    "--forget", metavar="DATA", help="Table of rows to forget, which must have been learned before."
)
@click.option(
    "--like",
    type=IN_FILE,
    metavar="FILE",
    help="Use the columns, parameters and quantizer of this model or these statistics; needed to forget "
    "rows exactly.",
)
@opt.out("Output file.", required=True, metavar="FILE.stats")
@opt.settings("Model parameter, for example C=10 or C=auto.")
@opt.count("--random-features", "Use a random feature map with N features.", minimum=2)
@click.option(
    "--gamma",
    type=float,
    multiple=True,
    metavar="G",
    help="Kernel width of the feature map, equal on all machines; may be repeated.",
)
@opt.count("--seed", "Random seed of the feature map, equal on all machines.", minimum=0, default=0)
@opt.columns
@json_option
def statistics_command(
    *,
    data: str | None,
    target: str | None,
    forget: str | None,
    like: Path | None,
    out: Path,
    settings: tuple[str, ...],
    random_features: int | None,
    gamma: tuple[float, ...],
    seed: int,
    columns: ColumnOptions,
    as_json: bool,
) -> None:
    """Write the statistics of DATA for `steelyard merge`; the rows stay on this machine.

    If C=auto or a feature map is used, it must be used on all machines; other parameters can be set when
    merging. With --forget, the file also removes rows that were learned before, so that one file per period
    implements a sliding window.
    """
    from steelyard.distributed.files import StatisticsPart

    if columns.missing == "mean":
        raise ParameterError(
            "--missing: the running mean differs between machines.",
            hint="use --missing indicator, refuse or zero",
        )
    if data is None and forget is None:
        raise ParameterError("no rows given.", hint="give DATA to learn, --forget DATA, or both")
    if like is not None and (settings or random_features is not None):
        raise ParameterError(
            "--like: parameters come from the file.", hint="omit --set and --random-features"
        )
    if like is None:
        parameters = parse_settings(settings)
        if random_features is not None:
            parameters["feature_map"] = _feature_map(random_features, gamma, seed)
        model = _new_model(target, parameters, columns.time)
    else:
        model = _unlearned(like, target)
    part, leaving, facts = StatisticsPart(model), StatisticsPart(deepcopy(model)), {}
    if data is not None:
        facts["learn"] = _read(part, data, columns)
    if forget is not None:
        part.retired = leaving
        facts["forget"] = _read(leaving, forget, columns)
    if as_json:
        learned = facts.get("learn", {"id": None, "rows": 0, "classes": {}})
        forgotten = {"forget": facts["forget"]} if forget is not None else {}
        emit_json({"out": str(out), **learned, **forgotten})
    else:
        for each in facts.values():
            click.echo(each["id"])
    save_model(part, out)
    rows = " and ".join(f"{each['rows']:,} rows to {what}" for what, each in facts.items())
    print_status(f"wrote the statistics of {rows} to {out}")


def _read(part: StatisticsPart, table: str, columns: ColumnOptions) -> dict[str, Any]:
    """Learn a table and return the id, the number and the class counts of its rows."""
    model = part.model
    stream = open_table(
        table, model.target, columns, encoder=model.encoder if model.encoder.is_fitted else None
    )
    model.encoder = stream.encoder
    n_rows = model.learn(stream)
    rows_id = model.history[-1]["id"]
    part.sources[rows_id] = stream.name
    learner = model.estimator
    counts = dict(zip(learner.classes_.tolist(), learner.class_count_.tolist(), strict=True))
    return {"id": rows_id, "rows": n_rows, "classes": counts}


def _new_model(target: str | None, parameters: dict[str, Any], time: str | None) -> TableModel:
    from steelyard.tables import TableModel

    if target is None:
        raise ParameterError("--target is missing.", hint="name the label column: --target COL")
    return TableModel(make_models(["proximal"], parameters)["proximal"], None, target, time)


def _feature_map(n_features: int, gamma: tuple[float, ...], seed: int) -> RandomFeatures:
    from steelyard import RandomFeatures

    if not gamma:
        raise ParameterError(
            "--random-features: kernel widths estimated from the data would differ between machines.",
            hint="give numbers: --gamma 0.01 --gamma 0.1",
        )
    return RandomFeatures(n_features, gamma=list(gamma), random_state=seed)


def _unlearned(path: Path, target: str | None) -> TableModel:
    """Return the model in a file as it was before it learned rows."""
    loaded = load_table_model(path, accepts_statistics=True)
    if not hasattr(loaded.estimator, "subtract"):
        raise wrong_kind_error(path, loaded)
    if target not in {None, loaded.target}:
        raise ParameterError(f"--target: the label column of {path} is {loaded.target!r}.")
    return loaded.unlearned()
