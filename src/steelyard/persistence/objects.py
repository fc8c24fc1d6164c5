"""Conversion of models to trees of values: registered class name, parameters and learned state."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from steelyard._concurrency import optional_lock
from steelyard.exceptions import DataTypeError, FileFormatError, ParameterError
from steelyard.persistence.envelope import FORMAT, quote, reason, unpack
from steelyard.persistence.tree import Node, encode_parts, read_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Storable(Protocol):
    """Interface of classes whose objects can be saved.

    ``_get_state`` returns the learned state as a tree of plain values, arrays and other storable objects. The
    tree is empty if nothing was learned yet. ``_set_state`` restores a non-empty state in a new object with
    the same parameters. Files may be forged, so ``_set_state`` must validate the state and raise ValueError,
    TypeError or KeyError if the state is invalid.
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]: ...
    def _get_state(self) -> dict[str, Any]: ...
    def _set_state(self, state: dict[str, Any]) -> None: ...


StorableClass = TypeVar("StorableClass", bound=type[Storable])

_classes: dict[str, type[Storable]] = {}
_names: dict[type, str] = {}
_former_parameters: dict[type, dict[str, str]] = {}

# Modules of this package that register classes. Other packages register their classes on import.
_REGISTERING_MODULES = (
    "alignment", "distributed.files", "enclosing", "ensemble", "features", "kernels", "keyed", "online",
    "proximal", "sql", "svm", "tables", "windowing",
)  # fmt: skip

_GENERATORS = {kind.__name__: kind for kind in (np.random.Generator, np.random.RandomState)}
_BIT_GENERATORS = {
    kind.__name__: kind
    for kind in (
        np.random.PCG64,
        np.random.PCG64DXSM,
        np.random.MT19937,
        np.random.Philox,
        np.random.SFC64,
    )
}
# Largest valid values of fields that NumPy does not check; larger values would cause out-of-bounds reads.
_UPPER_BOUNDS = {"pos": 624, "buffer_pos": 4, "has_uint32": 1, "has_gauss": 1}

_OBJECT = "object"
_PARTS = {"class", "parameters", "state"}


def storable(
    name: str, *, former_name: str | None = None, former_parameters: Mapping[str, str] | None = None
) -> Callable[[StorableClass], StorableClass]:
    """Register a class under a name that identifies it in files.

    Parameters
    ----------
    name : str
        Unique name, stored in every file.
    former_name : str, optional
        The name that earlier versions wrote; such files still load.
    former_parameters : mapping of str to str, optional
        Maps parameter names that earlier versions wrote to the current names.

    Returns
    -------
    callable
        The class decorator.

    Examples
    --------
    >>> from sklearn.base import BaseEstimator
    >>> from steelyard.persistence import from_bytes, storable, to_bytes
    >>> @storable("docs.Counter")
    ... class Counter(BaseEstimator):
    ...     def __init__(self, step=1):
    ...         self.step = step
    ...
    ...     def count(self):
    ...         self.total_ = getattr(self, "total_", 0) + self.step
    ...         return self
    ...
    ...     def _get_state(self):
    ...         return {"total": self.total_} if hasattr(self, "total_") else {}
    ...
    ...     def _set_state(self, state):
    ...         self.total_ = int(state["total"])
    >>> again = from_bytes(to_bytes(Counter(step=5).count()))
    >>> again, again.count().total_
    (Counter(step=5), 10)
    """

    def register(cls: StorableClass) -> StorableClass:
        other = _classes.get(name, cls)
        # A class may be defined again, for example by running a notebook cell twice.
        if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ParameterError(
                f"the name {name!r} is taken by {other.__module__}.{other.__qualname__}.", source="storable"
            )
        _classes[name] = cls
        _names[cls] = name
        if former_name is not None:
            _classes[former_name] = cls
        _former_parameters[cls] = dict(former_parameters or {})
        return cls

    return register


def to_bytes(model: Storable) -> bytes:
    """Return a model as the bytes that :func:`steelyard.persistence.save` writes.

    Parameters
    ----------
    model : object
        An object of a registered class.

    Returns
    -------
    bytes
        Models with equal parameters and state give equal bytes, within one installation.
    """
    return b"".join(to_parts(model))


def to_parts(model: Storable) -> list[bytes | memoryview]:
    """Return the encoded model as a list of byte blocks, some of which are views of its arrays."""
    name = type(model).__name__
    if type(model) not in _names:
        raise DataTypeError(
            f"expected a model of a registered class; got {name}.",
            source="save",
            hint="the learners of steelyard can be saved; register your own class with @storable",
        )
    with optional_lock(model):
        return encode_parts(model, _convert, name)


def from_bytes(data: bytes | bytearray | memoryview) -> Any:
    """Return the model encoded by :func:`to_bytes`.

    Parameters
    ----------
    data : bytes-like
        The bytes.

    Returns
    -------
    object
        A model with the same class, parameters and state.

    Raises
    ------
    FileFormatError
        If `data` is damaged, foreign, of a newer format, or of a class that is not registered.
    """
    envelope = unpack(data)
    model = read_tree(envelope, partial(_build, envelope.versions["steelyard"]))
    if type(model) not in _names:
        raise FileFormatError(f"The file contains a {type(model).__name__}, not a model.")
    return model


def describe_bytes(data: bytes | bytearray | memoryview) -> dict[str, Any]:
    """Return a summary of an encoded model without creating the model."""
    envelope = unpack(data)
    summary = read_tree(envelope, _summarise)
    if type(summary) is not dict or set(summary) != {"class", "parameters"}:
        raise FileFormatError("The file does not contain a model.")
    return {
        "format": FORMAT,
        **summary,
        "versions": dict(envelope.versions),
        "arrays": [(d["dtype"], tuple(d["shape"])) for d in envelope.descriptors],
        "n_bytes": envelope.n_bytes,
    }


def _convert(value: object, where: str) -> Node:
    """Convert a storable object or a random generator to a node of the tree."""
    if name := _names.get(type(value)):
        model: Any = value
        with optional_lock(model):
            parameters, state = dict(model.get_params(deep=False)), dict(model._get_state())
        return Node(_OBJECT, {"class": name, "parameters": parameters, "state": state})
    if type(value) in _GENERATORS.values():
        try:
            return Node(type(value).__name__, _generator_state(value))  # type: ignore[arg-type]  # narrowed above
        except TypeError as error:
            raise DataTypeError(f"{where} cannot be saved: {error}.", source="save") from error
    if callable(value):
        raise DataTypeError(
            f"{where} is the function or class {quote(value)}, and code cannot be saved.",
            source="save",
            hint="give the function by name if possible, or remove it before saving and set it after loading",
        )
    raise DataTypeError(
        f"{where} is a {type(value).__name__}, which cannot be saved.",
        source="save",
        hint="plain values, NumPy arrays, random generators and objects of registered classes can be saved",
    )


def _build(writer: str, node: Node) -> Any:
    """Return the object of a node, whose class must be registered. ``writer`` is a version of the library."""
    if node.kind != _OBJECT and node.kind not in _GENERATORS:
        raise FileFormatError(f"{quote(node.kind)} is not a kind of object that this library supports.")
    try:
        if node.kind == _OBJECT:
            return _model(node.content, writer)
        return _restored_generator(node.kind, node.content)
    except FileFormatError:
        raise
    except Exception as error:  # any error of a constructor means that the file is invalid
        name = quote(node.content.get("class", node.kind))
        raise FileFormatError(f"The content of the file is not a valid {name}: {reason(error)}") from error


def _model(content: dict[str, Any], writer: str) -> Storable:
    name, parameters, state = _parts(content)
    if name not in _classes:
        _import_registering_modules()
    if name not in _classes:
        raise FileFormatError(
            f"The file contains a model of class {quote(name)}, which is not registered; "
            f"it was written by steelyard {quote(writer)}.",
            hint="update steelyard, or import the module that registers this class before loading",
        )
    cls = _classes[name]
    former = _former_parameters[cls]
    model = cls(**{former.get(key, key): value for key, value in parameters.items()})
    if state:
        model._set_state(state)  # may convert parameters of earlier versions
        if hasattr(model, "_check_params"):
            model._check_params()  # a fitted model always has valid parameters
    return model


def _import_registering_modules() -> None:
    """Import all modules of this package that register classes. The file does not influence the list."""
    for module in _REGISTERING_MODULES:
        import_module(f"steelyard.{module}")


def _summarise(node: Node) -> Any:
    if node.kind == _OBJECT:
        name, parameters, _ = _parts(node.content)
        return {"class": name, "parameters": parameters}
    return {"class": node.kind, "bit_generator": node.content.get("bit_generator")}


def _parts(content: dict[str, Any]) -> tuple[str, dict[str, Any], dict[str, Any]]:
    if set(content) != _PARTS:
        raise FileFormatError(f"A model needs a class, parameters and state; got {quote(list(content))}.")
    name, parameters, state = content["class"], content["parameters"], content["state"]
    if type(name) is not str or type(parameters) is not dict or type(state) is not dict:
        raise FileFormatError("The class, the parameters or the state of a model have the wrong type.")
    if not all(type(key) is str for key in parameters):
        raise FileFormatError("A model has a parameter whose name is not text.")
    return name, parameters, state


# -- random generators -------------------------------------------------------------------------------
#
# The position in the sequence of numbers is saved. The seed sequence is not, so Generator.spawn returns
# different generators after loading.


def _generator_state(random: np.random.Generator | np.random.RandomState) -> dict[str, Any]:
    """Return the state of a generator; raise TypeError for a bit generator that is not part of NumPy."""
    if isinstance(random, np.random.Generator):
        state: Any = random.bit_generator.state
        kind = type(random.bit_generator)
    else:
        state = random.get_state(legacy=False)
        kind = type(random._bit_generator)
    if kind not in _BIT_GENERATORS.values():
        raise TypeError(f"the bit generator {kind.__name__} is not one of {', '.join(_BIT_GENERATORS)}")
    return dict(state)


def _restored_generator(kind: str, state: dict[str, Any]) -> np.random.Generator | np.random.RandomState:
    """Return a random generator of the given class with the given state."""
    random = _GENERATORS[kind](_BIT_GENERATORS[state["bit_generator"]](0))
    if _form(state) != _form(_generator_state(random)):
        raise ValueError("a random generator's state has wrong names, types or shapes")
    for name, value in {**state, **state["state"]}.items():
        if name in _UPPER_BOUNDS and not 0 <= value <= _UPPER_BOUNDS[name]:
            raise ValueError(f"a random generator's {name} is out of range")
    if isinstance(random, np.random.Generator):
        random.bit_generator.state = state
    else:
        random.set_state(state)
    _check_unchanged(state, _generator_state(random))
    return random


def _form(state: Any) -> Any:
    """Return the names, types and shapes of a state."""
    if isinstance(state, dict):
        return {name: _form(value) for name, value in state.items()}
    return (type(state), state.dtype, state.shape) if isinstance(state, np.ndarray) else type(state)


def _check_unchanged(state: Any, actual: Any) -> None:
    """Raise ValueError if NumPy has changed a number of the state, because it truncates large numbers."""
    if isinstance(state, dict):
        for name in state:
            _check_unchanged(state[name], actual[name])
    elif not np.array_equal(state, actual):
        raise ValueError("a random generator's state has a number out of range")
