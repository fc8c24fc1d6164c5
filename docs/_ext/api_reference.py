"""Reference pages generated from ``__all__``, so every public name of a module is listed."""

import importlib
import inspect
import re


def write_pages(folder, modules):
    """Write one page for each module, with a table of its public names."""
    folder.mkdir(parents=True, exist_ok=True)
    found = homes(modules)
    for name in modules:
        _write(folder / f"{name}.rst", page(name, found))
    _write(folder / "index.rst", contents(modules))
    described = {"index", *modules, *found.values()}
    for stale in [*folder.glob("*.rst"), *(folder.parent / "objects").glob("*.rst")]:
        if stale.stem not in described:
            stale.unlink()


def contents(modules):
    """Return the page of all modules, each with the first sentence of its docstring."""
    text = f"{_title('Reference')}Every public name, by the module it is at home in.\n\n"
    for name in modules:
        said = inspect.getdoc(importlib.import_module(name)) or ""
        first = " ".join(said.split("\n\n")[0].split())
        text += f":doc:`{name}`\n   {first}\n\n"
    entries = "".join(f"   {name}\n" for name in modules)
    return f"{text}.. toctree::\n   :hidden:\n   :maxdepth: 1\n\n{entries}"


def homes(modules):
    """Return the module that describes each public object: the top module, or that of its definition."""
    found = {}
    for module in modules:
        for public, thing in _public(module):
            made_here = (getattr(thing, "__module__", None) or "").startswith(module)
            if id(thing) not in found or (made_here and found[id(thing)] != f"{modules[0]}.{public}"):
                found[id(thing)] = f"{module}.{public}"
    return found


def _public(module):
    """Return the public objects of a module by name; lazy attributes are imported."""
    imported = importlib.import_module(module)
    return [(public, getattr(imported, public)) for public in imported.__all__]


def page(name, homes):
    """Return the page of a module: tables of the objects described here, and links to the others."""
    own = [(public, thing) for public, thing in _public(name) if homes[id(thing)] == f"{name}.{public}"]
    text = f"{_title(name)}.. automodule:: {name}\n   :no-members:\n\n.. currentmodule:: {name}\n\n"
    for heading, kind in _KINDS.items():
        names = [public for public, thing in own if kind(thing)]
        if names:
            rows = "".join(f"   {public}\n" for public in names)
            text += f"{_title(heading, '-')}.. autosummary::\n   :toctree: ../objects\n\n{rows}\n"
    values = [public for public, thing in own if not any(kind(thing) for kind in _KINDS.values())]
    if values:
        text += f"Values: {', '.join(f'``{public}``' for public in values)}.\n\n"
    elsewhere = [
        homes[id(thing)] for public, thing in _public(name) if homes[id(thing)] != f"{name}.{public}"
    ]
    if elsewhere:
        text += f"Also public from here: {', '.join(f':obj:`{full}`' for full in elsewhere)}.\n\n"
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
    # Unchanged pages are not written, so that Sphinx does not build them again.
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def skip_member(_app, _what, name, member, skip, _options):
    """Skip members documented by scikit-learn or Python, and learned attributes, which the class lists."""
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
    """Quote learned attributes in shapes such as ``(n_features_in_,)``, which Sphinx would parse as links."""
    lines[:] = [re.sub(r"\((\w+_),\)", r"(``\1``,)", line) for line in lines]


def setup(app):
    app.connect("autodoc-skip-member", skip_member)
    app.connect("autodoc-process-docstring", quote_attributes, priority=100)  # before numpydoc
    app.add_config_value("api_modules", [], "env", [list])
    return {"parallel_read_safe": True, "parallel_write_safe": True}
