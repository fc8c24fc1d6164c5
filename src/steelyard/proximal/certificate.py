"""Certificate of forgetting: the data with which a third party verifies that rows were forgotten."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from steelyard.base import Label
from steelyard.exceptions import DataError, FileFormatError
from steelyard.features import RandomFeatures
from steelyard.proximal.quantizer import Quantizer
from steelyard.proximal.serialization import reading, unknown_version

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from steelyard.proximal.estimator import ProximalSVC

_FORMAT = "steelyard certificate of forgetting"
_VERSION = 1

_OPTIONAL = ("feature_map", "table")
_STRINGS = ("digest_before", "digest_after", "digest_rows", "version", "when", *_OPTIONAL)
Counts = tuple[tuple[Label, float], ...]


@dataclass(frozen=True)
class Certificate:
    """Certificate of forgetting: the learner is identical to one that has learned only the remaining rows.

    :meth:`ProximalSVC.certify_forget <steelyard.ProximalSVC.certify_forget>` returns it. A third party that
    has the remaining rows verifies it with :meth:`holds_for`: a new learner with the same quantizer learns
    these rows, and the digests must be equal.

    Attributes
    ----------
    rows : float
        Number of forgotten rows (sum of their weights).
    forgotten, left : tuple of (label, float)
        Number of forgotten and of remaining rows of each class.
    digest_before, digest_after : str
        Digests of the learner before and after forgetting; see :meth:`ProximalSVC.digest`.
    digest_rows : str
        Digest of a learner that has learned only the forgotten rows, with the same quantizer.
    quantizer : Quantizer
        Quantizer of the learner: the step of each feature.
    feature_map : str or None
        Digest of the feature map of the learner.
    version : str
        Version of this library.
    when : str
        Date and time (UTC).
    table : str or None
        Serialized model without rows, which encodes table columns as features, if rows come from a table.
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
    def of(cls, before: ProximalSVC, forgotten: ProximalSVC, after: ProximalSVC) -> Certificate:
        """Create a certificate; ``forgotten`` is a learner that has learned only the forgotten rows."""
        feature_map = after.feature_map_
        return cls(
            rows=float(forgotten.class_count_.sum()),
            forgotten=_counts(forgotten),
            left=_counts(after),
            digest_before=before.digest(),
            digest_after=after.digest(),
            digest_rows=forgotten.digest(),
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
        """Return whether a new learner that learns only the given rows has the certified digest.

        Parameters
        ----------
        X, y, sample_weight
            The remaining rows, with the values, labels and weights with which they were learned.
        feature_map : RandomFeatures, optional
            The fitted map, if the learner has one.

        Returns
        -------
        bool
        """
        from steelyard.proximal.estimator import ProximalSVC  # imported here to avoid an import cycle

        digest = None if feature_map is None else feature_map.digest()
        if digest != self.feature_map:
            raise DataError(
                "the certified learner has another feature map."
                if self.feature_map
                else "the certified learner has no feature map.",
                source="Certificate.holds_for",
                hint="pass the fitted map of the learner, model.feature_map_",
            )
        fresh = ProximalSVC(quantizer=self.quantizer, feature_map=feature_map)
        return fresh.fit(X, y, sample_weight).digest() == self.digest_after

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as plain values, for JSON."""
        values = dict(vars(self))
        values["grid"] = values.pop("quantizer").to_dict()  # format version 1 uses this key
        values["forgotten"], values["left"] = map(list, (map(list, self.forgotten), map(list, self.left)))
        return {"format": _FORMAT, "format_version": _VERSION, **values}

    def to_json(self) -> str:
        """Return the certificate as JSON."""
        return json.dumps(self.to_dict(), indent=1)

    @classmethod
    def from_json(cls, text: str | bytes) -> Certificate:
        """Return the certificate that :meth:`to_json` wrote; raise FileFormatError for other texts."""
        try:
            values = json.loads(text)
        except UnicodeDecodeError as error:  # the message of this error would contain the whole file
            raise FileFormatError(
                "this is not JSON, because it is not text.", source="Certificate"
            ) from error
        except (ValueError, RecursionError) as error:
            raise FileFormatError(f"this is not JSON ({error}).", source="Certificate") from error
        if not isinstance(values, Mapping) or values.get("format") != _FORMAT:
            raise FileFormatError("this is not a certificate of forgetting.", source="Certificate")
        if values.get("format_version") != _VERSION:
            raise unknown_version("certificate", values.get("format_version"), _VERSION, "Certificate")
        with reading("certificate", "Certificate"):
            given = {field.name: values[field.name] for field in fields(cls) if field.name != "quantizer"}
            given["quantizer"] = Quantizer(**values["grid"])
            given["forgotten"], given["left"] = (
                tuple((label, float(count)) for label, count in given[name]) for name in ("forgotten", "left")
            )
            given["rows"] = float(given["rows"])
            for name in _STRINGS:
                if not isinstance(given[name], str) and not (name in _OPTIONAL and given[name] is None):
                    raise TypeError(f"{name} must be a string")
            return cls(**given)


def _counts(model: ProximalSVC) -> Counts:
    return tuple(zip(model.classes_.tolist(), model.class_count_.tolist(), strict=True))
