"""``steelyard statistics``: what one machine has to say of its rows."""

from __future__ import annotations

from typing import Any

import click

from steelyard import ProximalSVC, RandomFeatures
from steelyard.cli.options import OUT_FILE, column_options
from steelyard.cli.output import emit_json, json_option, talk
from steelyard.cli.registry import make_models, parse_settings
from steelyard.distributed.files import RowDigest, StatisticsPart, write
from steelyard.exceptions import ParameterError
from steelyard.streams.answers import teach
from steelyard.tables import TableModel, TableStream, open_stream

__all__ = ["statistics_command"]


@click.command("statistics")
@click.argument("data")
@click.option("--target", metavar="COL", required=True, help="Column of the labels.")
@click.option("-o", "--out", type=OUT_FILE, required=True, metavar="FILE.stats", help="Where to write.")
@click.option("--set", "settings", metavar="NAME=VALUE", multiple=True, help="A parameter: C=10 or C=auto.")
@click.option(
    "--random-features",
    type=click.IntRange(2),
    metavar="N",
    help="A random map of so many features in front.",
)
@click.option("--gamma", type=float, multiple=True, metavar="G", help="Its widths; the same on all machines.")
@click.option("--seed", type=click.IntRange(0), default=0, metavar="N", help="Its seed, likewise.")
@column_options
@json_option
def statistics_command(**options: Any) -> None:
    """Write the statistics of DATA, which stays where it is, for `steelyard combine`.

    C=auto and the random map must be the same on all machines; all else may be set when combining.
    """
    if options["missing"] == "mean":
        raise ParameterError(
            "--missing: the mean so far differs from machine to machine.", hint="use refuse or zero"
        )
    learner = _learner(options)
    stream = _stream(options)
    digest = RowDigest()
    for chunk in stream:
        teach(learner, chunk)
        digest.add(chunk.X, chunk.y)
    model = TableModel(learner, stream.encoder, options["target"], options["time"])
    model.note("learned", stream.name, digest.n_rows)
    write(StatisticsPart(model).note(digest, stream.name), options["out"])
    talk(f"wrote the statistics of {digest.n_rows:,} rows to {options['out']}")
    if options["as_json"]:
        counts = dict(zip(learner.classes_.tolist(), learner.class_count_.tolist(), strict=True))
        emit_json({"out": str(options["out"]), "id": digest.id, "rows": digest.n_rows, "classes": counts})
    else:
        click.echo(digest.id)


def _learner(options: dict[str, Any]) -> ProximalSVC:
    parameters = parse_settings(options["settings"])
    if options["random_features"] is not None:
        parameters["feature_map"] = _random_map(options["random_features"], options["gamma"], options["seed"])
    learner: ProximalSVC = make_models(["proximal"], parameters)["proximal"]
    return learner


def _stream(options: dict[str, Any]) -> TableStream:
    columns = ("time", "drop", "categorical", "missing", "chunk", "limit", "max_classes")
    return open_stream(
        options["data"],
        options["target"],
        features=options["features"] or None,
        **{name: options[name] for name in columns},
    )


def _random_map(n_components: int, gamma: tuple[float, ...], seed: int) -> RandomFeatures:
    if not gamma:
        raise ParameterError(
            "--random-features: widths that follow the data would differ from machine to machine.",
            hint="give numbers: --gamma 0.01 --gamma 0.1",
        )
    return RandomFeatures(n_components, gamma=list(gamma), random_state=seed)
