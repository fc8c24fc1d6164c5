"""Rendering of the templates of reports."""

from __future__ import annotations

import math
from datetime import datetime
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template
from markupsafe import Markup

from steelyard._visible import visible
from steelyard.persistence.files import write_atomically
from steelyard.report import text


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(lambda name: _source(f"templates/{name}")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_escape_control,
    )
    environment.filters.update(
        n=text.number,
        measure=lambda value: text.GAP if value is None or math.isnan(value) else f"{value:.3f}",
        percent=lambda share: text.GAP if math.isnan(share) else f"{share:.1%}",
        per_hundred=text.per_hundred,
    )
    environment.globals["measures"] = text.MEASURES
    return environment


def template(name: str) -> Template:
    """Return a template of this package, which escapes all values."""
    return _environment().get_template(name)


def _source(name: str) -> str:
    return (files("steelyard.report") / name).read_text(encoding="utf-8")


def _escape_control(value: Any) -> Any:
    """Escape control characters in labels and names, which are untrusted input."""
    return visible(value, keep="\n") if isinstance(value, str) and not isinstance(value, Markup) else value


def render(name: str, **facts: Any) -> str:
    """Render a template of this package; all values are escaped."""
    now = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    style, script = Markup(_source("style.css")), Markup(_source("script.js"))  # noqa: S704  package files
    return template(name).render(style=style, script=script, version=version("steelyard"), now=now, **facts)


def write_page(page: str, path: str | Path) -> Path:
    """Write a page atomically."""
    target = Path(path)
    write_atomically(target, [page.encode("utf-8", "backslashreplace")], source="report")
    return target
