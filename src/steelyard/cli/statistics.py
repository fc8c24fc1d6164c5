"""``steelyard statistics``: what one machine has to say of its rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from steelyard.cli.files import OUT_FILE, save_model
from steelyard.cli.models_io import open_table
from steelyard.cli.options import ColumnOptions, column_options, gathered
from steelyard.cli.output import emit_json, json_option, talk
from steelyard.cli.registry import make_models, parse_settings
from steelyard.exceptions import ParameterError

if TYPE_CHECKING:
    from steelyard import ProximalSVC, RandomFeatures

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
@gathered(MapOptions, "feature_map")
@column_options
@json_option
def statistics_command(
    *,
    data: str,
    target: str,
    out: Path,
    settings: tuple[str, ...],
    feature_map: MapOptions,
    columns: ColumnOptions,
    as_json: bool,
) -> None:
    """Write the statistics of DATA, which stays where it is, for `steelyard merge`.

    C=auto and the random map must be the same on all machines; all else may be set when merging.
    """
    from steelyard.distributed.files import StatisticsPart
    from steelyard.streams.answers import teach
    from steelyard.tables import TableModel
    from steelyard.tables.row_digest import RowDigest

    if columns.missing == "mean":
        raise ParameterError(
            "--missing: the mean so far differs from machine to machine.", hint="use refuse or zero"
        )
    learner = _learner(settings, feature_map)
    stream = open_table(data, target, columns)
    digest = RowDigest()
    for chunk in stream:
        teach(learner, chunk)
        digest.add(chunk.X, chunk.y, categories=stream.encoder.categories_of(chunk.X))
    model = TableModel(learner, stream.encoder, target, columns.time)
    model.note("learned", stream.name, digest.n_rows, digest.id)
    if as_json:
        counts = dict(zip(learner.classes_.tolist(), learner.class_count_.tolist(), strict=True))
        emit_json({"out": str(out), "id": digest.id, "rows": digest.n_rows, "classes": counts})
    else:
        click.echo(digest.id)
    save_model(StatisticsPart(model).note(digest, stream.name), out)
    talk(f"wrote the statistics of {digest.n_rows:,} rows to {out}")


def _learner(settings: tuple[str, ...], feature_map: MapOptions) -> ProximalSVC:
    parameters = parse_settings(settings)
    if (chosen := feature_map.make()) is not None:
        parameters["feature_map"] = chosen
    learner: ProximalSVC = make_models(["proximal"], parameters)["proximal"]
    return learner
