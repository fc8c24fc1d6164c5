"""Classifiers for imbalanced data that keeps coming, keeps changing and lies in several places."""

from importlib import import_module as _import_module
from importlib.util import find_spec as _find_spec
from typing import TYPE_CHECKING
from typing import Any as _Any

if TYPE_CHECKING:
    from steelyard.alignment import AlignedSVC
    from steelyard.committee import MovingCut, StreamClassifier
    from steelyard.enclosing import EnclosingClassifier
    from steelyard.exact import IncrementalSVC
    from steelyard.features import RandomFeatures
    from steelyard.online import KOIL, MultiKernelKOIL
    from steelyard.persistence import load, save
    from steelyard.proximal import ProximalSVC
    from steelyard.service.client import Client

    __version__: str

__all__ = [
    "KOIL",
    "AlignedSVC",
    "Client",
    "EnclosingClassifier",
    "IncrementalSVC",
    "MovingCut",
    "MultiKernelKOIL",
    "ProximalSVC",
    "RandomFeatures",
    "StreamClassifier",
    "__version__",
    "load",
    "save",
]

# Public name -> where it lives. Imported when asked for: scikit-learn takes seconds, and `steelyard --help`
# and the completion of a shell shall not.
_HOMES = {
    "AlignedSVC": "alignment",
    "Client": "service.client",
    "EnclosingClassifier": "enclosing",
    "IncrementalSVC": "exact",
    "KOIL": "online",
    "MovingCut": "committee",
    "MultiKernelKOIL": "online",
    "ProximalSVC": "proximal",
    "RandomFeatures": "features",
    "StreamClassifier": "committee",
    "load": "persistence",
    "save": "persistence",
}


def __getattr__(name: str) -> _Any:
    if name == "__version__":
        from importlib.metadata import version

        value: _Any = version("steelyard")
    elif name in _HOMES:
        value = getattr(_import_module(f"steelyard.{_HOMES[name]}"), name)
    elif not name.startswith("_") and _find_spec(f"steelyard.{name}") is not None:
        return _import_module(f"steelyard.{name}")
    else:
        raise AttributeError(f"module 'steelyard' has no attribute {name!r}")
    globals()[name] = value  # the next time it is simply there
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
