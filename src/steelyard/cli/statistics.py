"""``steelyard statistics``: what one machine has to say of its rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli.files import OUT_FILE, save_model
from steelyard.cli.models_io import open_table, refuse_kind
from steelyard.cli.options import MODEL_FILE, ColumnOptions, column_options, count_option, gathered
from steelyard.cli.output import emit_json, json_option, talk
from steelyard.cli.registry import make_models, parse_settings
from steelyard.exceptions import ParameterError

if TYPE_CHECKING:
    from steelyard import ProximalSVC, RandomFeatures
    from steelyard.distributed.files import StatisticsPart
    from steelyard.tables import TableModel

__all__ = ["statistics_command"]


@dataclass(frozen=True)
class MapOptions:
    """A random map in front of the learner; the same on all machines."""

    random_features: int | None
    gamma: tuple[float, ...]
    seed: int

    def make(self) -> RandomFeatures | None:
        """The map; None where none was asked for."""
        from steelyard import RandomFeatures

        if self.random_features is None:
            return None
        if not self.gamma:
            raise ParameterError(
                "--random-features: widths that follow the data would differ from machine to machine.",
                hint="give numbers: --gamma 0.01 --gamma 0.1",
            )
        return RandomFeatures(self.random_features, gamma=list(self.gamma), random_state=self.seed)


@click.command("statistics")
@click.argument("data", required=False)
@click.option("--target", metavar="COL", help="Column of the labels; with --like, that of the file.")
@click.option("--retire", metavar="DATA", help="A table of rows that are to go: they were learned before.")
@click.option(
    "--like",
    type=MODEL_FILE,
    metavar="FILE",
    help="A model or statistics whose columns, parameters and grid to take, so that rows go as they came.",
)
@click.option("-o", "--out", type=OUT_FILE, required=True, metavar="FILE.stats", help="Where to write.")
@click.option("--set", "settings", metavar="NAME=VALUE", multiple=True, help="A parameter: C=10 or C=auto.")
@count_option("--random-features", "A random map of so many features in front.", least=2)
@click.option("--gamma", type=float, multiple=True, metavar="G", help="Its widths; the same on all machines.")
@count_option("--seed", "Its seed, likewise.", least=0, default=0)
@gathered(MapOptions, "feature_map")
@column_options
@json_option
def statistics_command(
    *,
    data: str | None,
    target: str | None,
    forget: str | None,
    like: Path | None,
    out: Path,
    settings: tuple[str, ...],
    feature_map: MapOptions,
    columns: ColumnOptions,
    as_json: bool,
) -> None:
    """Write the statistics of DATA, which stays where it is, for `steelyard merge`.

    C=auto and the random map must be the same on all machines; all else may be set when merging. With
    --retire the file also holds what rows that were learned before have to be taken out: one file for a
    window that slides.
    """
    from steelyard.distributed.files import StatisticsPart

    if columns.missing == "mean":
        raise ParameterError(
            "--missing: the mean so far differs from machine to machine.", hint="use refuse or zero"
        )
    if data is None and forget is None:
        raise ParameterError("give DATA to learn, --retire DATA to unlearn, or both.")
    part = StatisticsPart(_empty(target, like, settings, feature_map, columns))
    part.retired = StatisticsPart(_empty(target, like, settings, feature_map, columns))
    told = {}
    for side, table in ((part, data), (part.retired, forget)):
        if table is not None:
            told["retire" if side is part.retired else "learn"] = _read(side, table, columns)
    if forget is None:
        part.retired = None
    if as_json:
        learned = told.get("learn", {"id": None, "rows": 0, "classes": {}})
        more = {"retire": told["retire"]} if forget is not None else {}
        emit_json({"out": str(out), **learned, **more})
    else:
        for facts in told.values():
            click.echo(facts["id"])
    save_model(part, out)
    rows = " and ".join(f"{facts['rows']:,} rows to {what}" for what, facts in told.items())
    talk(f"wrote the statistics of {rows} to {out}")


def _read(part: StatisticsPart, table: str, columns: ColumnOptions) -> dict[str, Any]:
    """Teach a part the rows of a table; what is to be said of them."""
    from steelyard.streams.predictions import learn_chunk
    from steelyard.tables.row_digest import RowDigest

    model, digest = part.model, RowDigest()
    fresh = not hasattr(model.encoder, "columns_")
    stream = open_table(table, model.target, columns, encoder=None if fresh else model.encoder)
    for chunk in stream:
        learn_chunk(model.estimator, chunk)
        digest.add(chunk.X, chunk.y, categories=stream.encoder.categories_of(chunk.X))
    model.encoder = stream.encoder
    model.note("learned", stream.name, digest.n_rows, digest.id)
    part.note(digest, stream.name)
    learner = model.estimator
    counts = dict(zip(learner.classes_.tolist(), learner.class_count_.tolist(), strict=True))
    return {"id": digest.id, "rows": digest.n_rows, "classes": counts}


def _empty(
    target: str | None,
    like: Path | None,
    settings: tuple[str, ...],
    feature_map: MapOptions,
    columns: ColumnOptions,
) -> TableModel:
    """A model that has learned nothing: as the options say, or like one in a file."""
    from steelyard.distributed.files import StatisticsPart
    from steelyard.persistence import load
    from steelyard.tables import TableModel

    if like is None:
        if target is None:
            raise ParameterError("--target is missing.", hint="name the column of the labels: --target COL")
        return TableModel(_learner(settings, feature_map), None, target, columns.time)
    if settings or feature_map.random_features is not None:
        raise ParameterError("--like: parameters come from the file.", hint="leave --set and the map out")
    known = load(like)
    known = known.model if isinstance(known, StatisticsPart) else known
    if not isinstance(known, TableModel) or not hasattr(known.estimator, "subtract"):
        raise refuse_kind(like, known)
    if target not in {None, known.target}:
        raise ParameterError(f"--target: {like} was taught with the labels in {known.target!r}.")
    return known.unlearned()


def _learner(settings: tuple[str, ...], feature_map: MapOptions) -> ProximalSVC:
    parameters = parse_settings(settings)
    if (chosen := feature_map.make()) is not None:
        parameters["feature_map"] = chosen
    learner: ProximalSVC = make_models(["proximal"], parameters)["proximal"]
    return learner
