"""What the scribe is asked to do, and the errors that say why it was not done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from steelyard.exceptions import SteelyardError
from steelyard.federated import SiteUpdate
from steelyard.service.reply import Reply
from steelyard.service.spec import Spec
from steelyard.service.store import Waiting
from steelyard.tables.columns import ColumnBatch

__all__ = [
    "Conflict",
    "Drop",
    "Forget",
    "GoneError",
    "Label",
    "Learn",
    "NotFoundError",
    "Publish",
    "Put",
    "QueueFullError",
    "Remember",
    "Request",
    "Tick",
    "Unavailable",
]


class NotFoundError(SteelyardError, LookupError):
    """There is no such model, row or version."""


class Conflict(SteelyardError, ValueError):  # noqa: N818  a state of the world
    """What was asked for contradicts what is there."""


class GoneError(SteelyardError, LookupError):
    """What was asked for has been erased."""


class QueueFullError(SteelyardError, RuntimeError):
    """Too many requests wait; try again shortly."""


class Unavailable(SteelyardError, RuntimeError):  # noqa: N818  a state of the world
    """The store cannot be written; nothing was changed."""


@dataclass
class Request:
    """One wish of a client.

    Parameters
    ----------
    model : str
        The model that it is about.
    key : str, optional
        The client's own name for this request: sent again, it gets the first answer again.
    fingerprint : str
        What tells whether two requests with one key are the same.
    """

    erases: ClassVar[bool] = False  # whether what it deletes must be gone from the file before the answer

    model: str
    key: str | None = field(default=None, kw_only=True)
    fingerprint: str = field(default="", kw_only=True)
    future: Reply = field(default_factory=Reply, kw_only=True, repr=False)


@dataclass
class Put(Request):
    """Make a model, or change what may be changed."""

    spec: Spec


@dataclass
class Learn(Request):
    """Learn rows with their labels."""

    batch: ColumnBatch


@dataclass
class Remember(Request):
    """Keep rows that were answered until their labels come."""

    waiting: Sequence[Waiting]
    told: Mapping[str, Any] = field(default_factory=dict)  # the answer that is given for them


@dataclass
class Label(Request):
    """Labels of remembered rows, by id."""

    labels: Mapping[str, Any]


@dataclass
class Forget(Request):
    """Forget rows, chosen in exactly one way."""

    erases: ClassVar[bool] = True

    ids: Sequence[str] | None = None
    subject: str | None = None
    before: float | None = None
    batch: ColumnBatch | None = None

    @property
    def by(self) -> str:
        """The way in which rows are chosen."""
        return next(
            name
            for name, value in {
                "ids": self.ids,
                "subject": self.subject,
                "time": self.before,
                "rows": self.batch,
            }.items()
            if value is not None
        )


@dataclass
class Publish(Request):
    """The latest bulletin of a site, for a model that is pooled from sites."""

    site_update: SiteUpdate


@dataclass
class Drop(Request):
    """Leave a site out, as if it had never been there."""

    erases: ClassVar[bool] = True

    site: str


@dataclass
class Tick(Request):
    """Time has passed: let go what is too old."""
