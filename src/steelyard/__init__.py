"""Classifiers for imbalanced data streams with concept drift, on one or several sites."""

from importlib import import_module as _import_module
from importlib.util import find_spec as _find_spec
from typing import TYPE_CHECKING
from typing import Any as _Any

from steelyard._deprecation import redirect_modules as _redirect_modules

if TYPE_CHECKING:
    from steelyard.alignment import AlignedSVC
    from steelyard.enclosing import EnclosingClassifier
    from steelyard.ensemble import AdaptiveThresholdClassifier, StreamClassifier
    from steelyard.features import RandomFeatures
    from steelyard.keyed import KeyedClassifier
    from steelyard.online import KOIL, MultiKernelKOIL
    from steelyard.persistence import load, save
    from steelyard.proximal import ProximalSVC
    from steelyard.service.client import Client
    from steelyard.svm import IncrementalSVC
    from steelyard.tables import TableModel

    __version__: str

__all__ = [
    "KOIL",
    "AdaptiveThresholdClassifier",
    "AlignedSVC",
    "Client",
    "EnclosingClassifier",
    "IncrementalSVC",
    "KeyedClassifier",
    "MultiKernelKOIL",
    "ProximalSVC",
    "RandomFeatures",
    "StreamClassifier",
    "TableModel",
    "__version__",
    "load",
    "save",
]

# Module of each public name. Modules are imported on first use, because importing scikit-learn takes seconds.
# Commands such as `steelyard --help` and shell completion must be fast.
_MODULES = {
    "AlignedSVC": "alignment",
    "Client": "service.client",
    "EnclosingClassifier": "enclosing",
    "IncrementalSVC": "svm",
    "KOIL": "online",
    "KeyedClassifier": "keyed",
    "AdaptiveThresholdClassifier": "ensemble",
    "MultiKernelKOIL": "online",
    "ProximalSVC": "proximal",
    "RandomFeatures": "features",
    "StreamClassifier": "ensemble",
    "TableModel": "tables",
    "load": "persistence",
    "save": "persistence",
}

_redirect_modules(
    {
        "steelyard.committee": "steelyard.ensemble",
        "steelyard.cuts": "steelyard.thresholds",
        "steelyard.exact": "steelyard.svm",
        "steelyard.items": "steelyard.kernels.sequences",
        "steelyard.kernel_blocks": "steelyard.kernels.kernel",
        "steelyard.kernels.precomputed": "steelyard.kernels.kernel",
        "steelyard.memory": "steelyard.windowing",
        "steelyard.precomputed": "steelyard.kernels",
        "steelyard.sequence_kernels": "steelyard.kernels.sequences",
        "steelyard.sites": "steelyard.federated",
    }
)


def __getattr__(name: str) -> _Any:
    if name == "__version__":
        from importlib.metadata import version

        value: _Any = version("steelyard")
    elif name == "MovingCut":
        return _import_module("steelyard.ensemble").MovingCut
    elif name in _MODULES:
        value = getattr(_import_module(f"steelyard.{_MODULES[name]}"), name)
    elif not name.startswith("_") and _find_spec(f"steelyard.{name}") is not None:
        return _import_module(f"steelyard.{name}")
    else:
        raise AttributeError(f"module 'steelyard' has no attribute {name!r}")
    globals()[name] = value  # later accesses to this name do not call __getattr__
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
