"""What the streaming measures share: one interface, checks, and states that can be saved."""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from steelyard.exceptions import DataError, FileFormatError, ParameterError
from steelyard.metrics.labels import Label, plain

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


class StreamingMetric(ABC):
    """A measure that is kept up to date while answers keep coming.

    Where the stream is cut into chunks does not change any result. An update that raises changes nothing.
    """

    _parameters: ClassVar[tuple[str, ...]]

    @abstractmethod
    def update(
        self,
        y_true: ArrayLike,
        y_pred: ArrayLike | None = None,
        y_score: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Take in the next rows, or a single one; what a measure does not need it does not look at."""

    @abstractmethod
    def get(self) -> float:
        """The measure now; ``nan`` with a warning where its denominator is empty."""

    @abstractmethod
    def reset(self) -> Self:
        """Forget all rows."""

    @abstractmethod
    def _content(self) -> dict[str, Any]:
        """Arrays and JSON values that `_restore` can bring back."""

    @abstractmethod
    def _restore(self, state: dict[str, Any]) -> None:
        """Take over a content; raise a `ValueError` if it is none of ours."""

    def to_state(self) -> dict[str, Any]:
        """Everything as a dictionary of NumPy arrays and JSON values.

        Returns
        -------
        dict
            What :meth:`from_state` takes to go on as if nothing had happened.
        """
        parameters = {name: getattr(self, name) for name in self._parameters}
        for name, value in parameters.items():
            _check_can_be_saved(value, name)
        content = self._content()
        _check_can_be_saved(content.get("labels", []), "labels")
        return {"kind": type(self).__name__, "parameters": parameters, **content}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """A measure that goes on where another one was when :meth:`to_state` was called.

        Parameters
        ----------
        state : dict
            What :meth:`to_state` returned.

        Returns
        -------
        StreamingMetric
            An instance of this class.
        """
        if state.get("kind") != cls.__name__:
            raise FileFormatError(
                f"expected a state of this kind; got {state.get('kind')!r}.", source=cls.__name__
            )
        try:
            metric = cls(**state["parameters"])
            metric._restore(state)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise FileFormatError(f"the state is damaged: {error}.", source=cls.__name__) from error
        return metric

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._parameters)
        return f"{type(self).__name__}({shown})"

    @property
    def _source(self) -> str:
        return f"{type(self).__name__}.update"


def _check_can_be_saved(value: Any, name: str) -> None:
    for item in value if isinstance(value, list | tuple) else [value]:
        if not isinstance(item, str | int | float | bool | None):
            raise DataError(
                f"{name} must be strings or numbers to be saved; got {item!r} of type {type(item).__name__}.",
                source="to_state",
            )


def check_window(window: int, source: str) -> int:
    if (
        not isinstance(window, numbers.Integral)
        or isinstance(window, bool)
        or not 1 <= window <= np.iinfo(np.int32).max
    ):
        raise ParameterError(f"window must be a positive number of rows; got {window!r}.", source=source)
    return int(window)


def need(value: ArrayLike | None, source: str, name: str) -> ArrayLike:
    if value is None:
        raise DataError(f"{name} is needed and did not come.", source=source)
    return value


def column(state: dict[str, Any], name: str, kind: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """An array of a state; raises where it is not of the kind and shape that `_content` wrote."""
    values = np.array(state[name])
    if values.dtype.kind != kind or values.shape != shape:
        raise ValueError(f"{name} has type {values.dtype} and shape {values.shape}, expected {kind} {shape}")
    return values


def check_codes(codes: NDArray[Any], n_labels: int) -> None:
    if codes.size and not (codes.min() >= 0 and codes.max() < n_labels):
        raise ValueError("a label number is out of range")


def plain_labels(labels: ArrayLike) -> list[Label]:
    return [plain(label) for label in (labels if isinstance(labels, list | tuple) else np.asarray(labels))]
