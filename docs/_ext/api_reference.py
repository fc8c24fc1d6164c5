"""Reference pages from ``__all__``: a name that a module makes public appears by itself."""

import importlib
import inspect
import re
from importlib.util import find_spec


def write_pages(folder, modules):
    """Write one page for each module that exists, with a table of its public names."""
    folder.mkdir(parents=True, exist_ok=True)
    present = [name for name in modules if find_spec(name) is not None]
    top = set(importlib.import_module(present[0]).__all__)
    for name in present:
        _write(folder / f"{name}.rst", _page(name, top if name != present[0] else set()))
    entries = "".join(f"   {name}\n" for name in present)
    _write(folder / "index.rst", f"{_title('Reference')}.. toctree::\n   :maxdepth: 1\n\n{entries}")
    for stale in folder.glob("*.rst"):
        if stale.stem not in {"index", *present}:
            stale.unlink()


def _page(name, described_elsewhere):
    module = importlib.import_module(name)
    own = [public for public in module.__all__ if public not in described_elsewhere]
    same = [public for public in module.__all__ if public in described_elsewhere]
    text = f"{_title(name)}.. automodule:: {name}\n   :no-members:\n\n.. currentmodule:: {name}\n\n"
    if same:
        links = ", ".join(f":obj:`steelyard.{public}`" for public in same)
        text += f"Public from ``steelyard`` itself: {links}.\n\n"
    for heading, kind in _KINDS.items():
        names = [public for public in own if public in vars(module) and kind(vars(module)[public])]
        if names:
            rows = "".join(f"   {public}\n" for public in names)
            text += f"{_title(heading, '-')}.. autosummary::\n   :toctree: ../objects\n\n{rows}\n"
    return text


def _is_error(thing):
    return inspect.isclass(thing) and issubclass(thing, BaseException)


_KINDS = {
    "Classes": lambda thing: inspect.isclass(thing) and not _is_error(thing),
    "Functions": inspect.isroutine,
    "Exceptions": _is_error,
}


def _title(text, mark="="):
    return f"{text}\n{mark * len(text)}\n\n"


def _write(path, text):
    # Only what changed is written, so that only that is built again.
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def skip_member(_app, _what, name, member, skip, _options):
    """Leave out what scikit-learn or Python describes, and learned attributes, which the class lists."""
    target = (
        member.fget
        if isinstance(member, property)
        else inspect.unwrap(member)
        if callable(member)
        else member
    )
    module = getattr(target, "__module__", None) or ""
    if isinstance(member, property) and name.endswith("_"):
        return True
    if name.endswith("_request") or not module.startswith("steelyard"):
        return True
    return skip


def quote_attributes(_app, _what, _name, _thing, _options, lines):
    """Learned attributes in shapes, ``(n_features_in_,)``, would read as links."""
    lines[:] = [re.sub(r"\((\w+_),\)", r"(``\1``,)", line) for line in lines]


def setup(app):
    app.connect("autodoc-skip-member", skip_member)
    app.connect("autodoc-process-docstring", quote_attributes, priority=100)  # before numpydoc
    app.add_config_value("api_modules", [], "env", [list])
    return {"parallel_read_safe": True, "parallel_write_safe": True}
