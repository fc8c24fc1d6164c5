"""Deprecation of public names: the old name works and emits a warning that names its replacement."""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.machinery
import inspect
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, TypeVar

Thing = TypeVar("Thing", bound=Callable[..., Any])

_SKIPPED_PACKAGES = {"steelyard", "importlib", "_frozen_importlib", "_frozen_importlib_external"}
_SINCE, _GONE_IN = "0.3.0", "0.4.0"  # names that changed in 0.3 are removed in 0.4


def renamed_parameters(**new_names: str) -> Callable[[Thing], Thing]:
    """Decorate a class or function to accept former parameter names, mapped to the current names."""

    def wrap(call: Any, name: str) -> Any:
        @functools.wraps(call)
        def translated(*args: Any, **kwargs: Any) -> Any:
            for old in new_names.keys() & kwargs.keys():
                new = new_names[old]
                if new in kwargs:
                    raise TypeError(f"{name} got {new!r} and its former name {old!r}; write {new!r} only.")
                warn_renamed(f"the parameter {old!r} of {name}", new)
                kwargs[new] = kwargs.pop(old)
            return call(*args, **kwargs)

        return translated

    def mark(thing: Thing) -> Thing:
        if not inspect.isclass(thing):
            marked: Thing = wrap(thing, thing.__qualname__)
            return marked
        thing.__init__ = wrap(thing.__init__, thing.__name__)  # type: ignore[method-assign]
        if hasattr(thing, "set_params"):
            thing.set_params = wrap(thing.set_params, thing.__name__)
        for old, new in new_names.items():
            setattr(thing, old, renamed_attribute(new, old))
        return thing

    return mark


def renamed_attribute(new: str, old: str) -> Any:
    """Return a property with a former name that reads the attribute ``new``."""

    def read(self: Any) -> Any:
        value = getattr(self, new)
        warn_renamed(f"the attribute {old!r} of {type(self).__name__}", new)
        return value

    return property(read, doc=f"Deprecated since {_SINCE} and gone in {_GONE_IN}: write ``{new}``.")


def renamed_method(new: str, old: str) -> Any:
    """Return a method with a former name that calls the method ``new``."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        warn_renamed(f"{type(self).__name__}.{old}()", f"{new}()")
        return getattr(self, new)(*args, **kwargs)

    call.__name__ = old
    call.__doc__ = f"Deprecated since {_SINCE} and gone in {_GONE_IN}: write ``{new}()``."
    return call


def former_names(module: str, /, **names: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module that resolves names that it exported formerly.

    Each name is mapped to the current name in the same module, or to the dotted path of a private object.
    """

    def resolve(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, current = names[name].rpartition(".")
        if not home:
            warn_renamed(f"{module}.{name}", f"{module}.{current}")
        else:
            _warn(f"{module}.{name} is private since {_SINCE} and will be gone in {_GONE_IN}.")
        return getattr(importlib.import_module(home or module), current)

    return resolve


def redirect_modules(former: Mapping[str, str]) -> None:
    """Redirect imports of former module names to the current modules, with a ``FutureWarning``."""
    if not any(isinstance(finder, _RedirectFinder) for finder in sys.meta_path):
        sys.meta_path.append(_RedirectFinder(former))


class _RedirectFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finder of former module names, last in ``sys.meta_path`` so that other imports are not slower."""

    def __init__(self, former: Mapping[str, str]) -> None:
        self._former = former

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if self._current_name(fullname) is None:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        new = self._current_name(spec.name)
        assert new is not None
        warn_renamed(f"the module {spec.name}", new)
        return _Redirected(spec.name, importlib.import_module(new))

    def exec_module(self, module: ModuleType) -> None:
        pass

    def _current_name(self, fullname: str) -> str | None:
        for old, new in self._former.items():
            if fullname == old or fullname.startswith(f"{old}."):
                return new + fullname.removeprefix(old)
        return None


class _Redirected(ModuleType):
    """Module under its former name, whose attributes are read from the current module."""

    def __init__(self, name: str, current: ModuleType) -> None:
        super().__init__(name, current.__doc__)
        self.__dict__["_current"] = current

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_current"], name)

    def __dir__(self) -> list[str]:
        return dir(self.__dict__["_current"])


def warn_renamed(old: str, new: str) -> None:
    """Emit the warning for a deprecated name, which users see by default."""
    _warn(f"{old} is deprecated since {_SINCE} and will be gone in {_GONE_IN}; write {new}.")


def _warn(message: str) -> None:
    """Emit a warning at the line of the user, the first one outside of this package and the import system."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _package(frame.f_globals) in _SKIPPED_PACKAGES:
        frame = frame.f_back
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    module = frame.f_globals.get("__name__")
    warnings.warn_explicit(
        message, FutureWarning, frame.f_code.co_filename, frame.f_lineno, module=module, registry=registry
    )


def _package(names: Mapping[str, Any]) -> str:
    """Return the name of the package of a module with the given global names."""
    return str(names.get("__name__")).partition(".")[0]
