"""A certificate of forgetting: what a third party needs to repeat the proof."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from steelyard._types import FloatArray
from steelyard.base import Label
from steelyard.exceptions import DataError, FileFormatError
from steelyard.features import RandomFeatures
from steelyard.proximal.state.quantizer import Quantizer

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from steelyard.proximal.classifier import ProximalSVC

__all__ = ["Certificate"]

_FORMAT = "steelyard certificate of forgetting"
_VERSION = 1

_MAYBE = ("feature_map", "table")
_TEXTS = ("digest_before", "digest_after", "digest_rows", "version", "when", *_MAYBE)
Counts = tuple[tuple[Label, float], ...]


@dataclass(frozen=True)
class Certificate:
    """What :meth:`ProximalSVC.forget <steelyard.ProximalSVC.forget>` gives with ``certificate=True``.

    The claim: after these rows were forgotten, the learner holds exactly what a learner holds that has seen
    nothing but the rows that remain. Whoever has those rows can check it with :meth:`holds_for`: they are
    learned from scratch on the same grid, and the digests must be equal.

    Attributes
    ----------
    rows : float
        Number of rows that were forgotten (sum of their weights).
    forgotten, left : tuple of (label, float)
        Rows of each class that were forgotten, and that are left.
    digest_before, digest_after : str
        Names of what was learned, before and after; see :meth:`ProximalSVC.digest`.
    digest_rows : str
        The name of the rows that went: the digest of a learner that saw nothing else, on this grid.
    grid : Quantizer
        The steps in which values are counted.
    feature_map : str or None
        Digest of the feature map in front of the learner.
    version : str
        Version of this library.
    when : str
        Date and time of the forgetting (UTC).
    table : str or None
        How columns of a table become features, for whoever reads the rows from a table.
    """

    rows: float
    forgotten: Counts
    left: Counts
    digest_before: str
    digest_after: str
    digest_rows: str
    quantizer: Quantizer
    feature_map: str | None
    version: str
    when: str
    table: str | None = None

    @classmethod
    def of(cls, before: ProximalSVC, gone: ProximalSVC, after: ProximalSVC) -> Certificate:
        """The certificate of a step: a learner before it, one of the rows that went, and what is left."""
        feature_map = after.feature_map_
        return cls(
            rows=float(gone.class_count_.sum()),
            forgotten=_counts(gone),
            left=_counts(after),
            digest_before=before.digest(),
            digest_after=after.digest(),
            digest_rows=gone.digest(),
            quantizer=after.quantizer_,
            feature_map=None if feature_map is None else feature_map.digest(),
            version=version("steelyard"),
            when=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def holds_for(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        feature_map: RandomFeatures | None = None,
    ) -> bool:
        """Whether a learner that sees nothing but these rows has the digest that is certified.

        Parameters
        ----------
        X, y, sample_weight
            The rows that remain, as they were learned.
        feature_map : RandomFeatures, optional
            The settled map, if there was one.

        Returns
        -------
        bool
        """
        from steelyard.proximal.classifier import ProximalSVC

        digest = None if feature_map is None else feature_map.digest()
        if digest != self.feature_map:
            raise DataError(
                "the rows passed through a feature map, and this is not it."
                if self.feature_map
                else "the rows passed through no feature map.",
                source="Certificate.holds_for",
                hint="give the settled map of the learner, model.feature_map_",
            )
        fresh = ProximalSVC(quantizer=self.quantizer, feature_map=feature_map)
        return fresh.fit(X, y, sample_weight).digest() == self.digest_after

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values["grid"] = values.pop("quantizer").to_dict()  # the key of format version 1
        values["forgotten"], values["left"] = map(list, (map(list, self.forgotten), map(list, self.left)))
        return {"format": _FORMAT, "format_version": _VERSION, **values}

    def to_json(self) -> str:
        """The certificate as JSON text."""
        return json.dumps(self.to_dict(), indent=1)

    @classmethod
    def from_json(cls, text: str | bytes) -> Certificate:
        """The certificate of such a text; anything else is refused with a sentence."""
        try:
            values = json.loads(text)
        except UnicodeDecodeError as error:  # its text would hold all that was read
            raise FileFormatError("this is not JSON: it is not text.", source="Certificate") from error
        except (ValueError, RecursionError) as error:
            raise FileFormatError(f"this is not JSON ({error}).", source="Certificate") from error
        if not isinstance(values, Mapping) or values.get("format") != _FORMAT:
            raise FileFormatError("this is no certificate of forgetting.", source="Certificate")
        if values.get("format_version") != _VERSION:
            raise FileFormatError(
                f"the certificate has version {values.get('format_version')!r}; this library reads "
                f"version {_VERSION}.",
                source="Certificate",
                hint="update the library on this side",
            )
        try:
            given = {field.name: values[field.name] for field in fields(cls) if field.name != "quantizer"}
            given["quantizer"] = Quantizer(**values["grid"])
            given["forgotten"], given["left"] = (
                tuple((label, float(count)) for label, count in given[name]) for name in ("forgotten", "left")
            )
            given["rows"] = float(given["rows"])
            _check_texts(given)
            return cls(**given)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise FileFormatError(f"the certificate is damaged ({error}).", source="Certificate") from error


def _check_texts(given: Mapping[str, Any]) -> None:
    for name in _TEXTS:
        if not isinstance(given[name], str) and not (name in _MAYBE and given[name] is None):
            raise TypeError(f"{name} is no text")


def _counts(model: ProximalSVC) -> Counts:
    counts: FloatArray = model.class_count_
    return tuple(zip(model.classes_.tolist(), counts.tolist(), strict=True))
