"""``steelyard combine``: one model from the statistics of many machines."""

from __future__ import annotations

from pathlib import Path

import click

from steelyard.cli.options import MODEL_FILE, OUT_FILE
from steelyard.cli.output import emit_json, json_option, talk
from steelyard.cli.registry import parse_settings
from steelyard.distributed.files import combine, write
from steelyard.exceptions import ParameterError
from steelyard.persistence import save

__all__ = ["combine_command"]


@click.command("combine")
@click.argument("parts", nargs=-1, required=True, type=MODEL_FILE)
@click.option("-o", "--out", type=OUT_FILE, required=True, metavar="FILE", help="Where to write the model.")
@click.option(
    "--set", "settings", metavar="NAME=VALUE", multiple=True, help="A parameter of the model: C=10."
)
@json_option
def combine_command(parts: tuple[Path, ...], out: Path, settings: tuple[str, ...], as_json: bool) -> None:
    """Combine PARTS, written by `steelyard statistics`, into the model of all their rows.

    The same rows in two parts are refused. If the name of the output ends with .stats, it can be combined
    again with others.
    """
    total = combine(parts)
    learner = total.model.learner
    _set(learner, settings)
    _ = learner.C_  # refuses what these statistics cannot give, such as C=auto without folds
    if out.suffix == ".stats":
        write(total, out)
    else:
        save(total.model, out)
    rows = float(learner.class_count_.sum())
    talk(f"combined {len(parts)} files with {rows:,.0f} rows into {out}")
    if as_json:
        counts = dict(zip(learner.classes_.tolist(), learner.class_count_.tolist(), strict=True))
        parts_in = [{"id": part, "source": source} for part, source in total.sources.items()]
        emit_json({"out": str(out), "parts": parts_in, "rows": rows, "classes": counts})
    else:
        for part, source in total.sources.items():
            click.echo(f"{part}\t{source}")


def _set(learner: object, settings: tuple[str, ...]) -> None:
    try:
        learner.set_params(**parse_settings(settings))  # type: ignore[attr-defined]  # every learner has it
        learner._check_params()  # type: ignore[attr-defined]
    except ParameterError:
        raise
    except ValueError as error:
        raise ParameterError(f"--set: {error}") from error
