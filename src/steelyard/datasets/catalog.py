"""Catalog of the datasets with their shapes and sources.

Data from a source is accepted only if its rows, features and class counts agree with the catalog.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Entry:
    """Shape and sources of one dataset."""

    rows: int
    features: int
    # Number of rows of each label; not checked if empty.
    classes: Mapping[Any, int] = field(default_factory=dict)
    # Number of rows of each label without missing cells.
    complete: Mapping[Any, int] = field(default_factory=dict)
    kind: str = "table"  # "table", "images" or "texts"
    labelled: bool = True
    openml: int | None = None  # `data_id` in OpenML
    # Mapping from OpenML labels to labels of this package.
    openml_labels: Mapping[str, Any] = field(default_factory=dict)


def _koil(rows: int, features: int, rare: int) -> Entry:
    return Entry(rows, features, {-1: rows - rare, 1: rare})


# Files of the KOIL authors (koil_<name>): numbers of rows, features and rows of the rare class.
_KOIL_SETS = {
    "sonar": (208, 60, 97),
    "australian": (690, 14, 307),
    "heart": (270, 13, 120),
    "ionosphere": (351, 34, 126),
    "diabetes": (768, 8, 268),
    "glass": (214, 9, 70),
    "german": (1000, 24, 300),
    "svmguide2": (391, 20, 117),
    "segment": (2310, 19, 330),
    "satimage": (4435, 36, 415),
    "vowel": (528, 10, 48),
    "letter": (15000, 16, 538),
    "poker": (25010, 10, 513),
    "shuttle": (43500, 9, 132),
    "s4": (1000, 2, 200),
    "s10": (1100, 2, 100),
    "s50": (5100, 2, 100),
    "s100": (10100, 2, 100),
}

_SEGMENTS = ("BRICKFACE", "CEMENT", "FOLIAGE", "GRASS", "PATH", "SKY", "WINDOW")
_YEAST = {
    "CYT": 463, "ERL": 5, "EXC": 35, "ME1": 44, "ME2": 51, "ME3": 163, "MIT": 244, "NUC": 429, "POX": 20,
    "VAC": 30,
}  # fmt: skip
_GLASS = {
    "build wind float": 1, "build wind non-float": 2, "vehic wind float": 3, "vehic wind non-float": 4,
    "containers": 5, "tableware": 6, "headlamps": 7,
}  # fmt: skip
_COVER = {1: 211840, 2: 283301, 3: 35754, 4: 2747, 5: 9493, 6: 17367, 7: 20510}
_SHUTTLE = {
    "Bpv Close": 10, "Bpv Open": 13, "Bypass": 3267, "Fpv Close": 50, "Fpv Open": 171, "High": 8903,
    "Rad Flow": 45586,
}  # fmt: skip

CATALOG: dict[str, Entry] = {
    "iris": Entry(150, 4, {0: 50, 1: 50, 2: 50}),
    "wine": Entry(178, 13, {0: 59, 1: 71, 2: 48}),
    "digits": Entry(1797, 64),
    "wdbc": Entry(569, 30, {0: 212, 1: 357}),
    "breast_wisconsin": Entry(
        699,
        9,
        {2: 458, 4: 241},
        {2: 444, 4: 239},
        openml=15,
        openml_labels={"benign": 2, "malignant": 4},
    ),
    "car": Entry(1728, 6, {"acc": 384, "good": 69, "unacc": 1210, "vgood": 65}, openml=21),
    "abalone": Entry(4177, 8, openml=183),
    "heart_cleveland": Entry(
        303, 13, {0: 164, 1: 55, 2: 36, 3: 35, 4: 13}, {0: 160, 1: 54, 2: 35, 3: 35, 4: 13}
    ),
    "msweb": Entry(32711, 294, labelled=False),
    "covtype": Entry(581012, 54, _COVER, openml=1596),
    "faces_orl": Entry(400, 112 * 92, kind="images"),
    "segmentation_210": Entry(210, 19, dict.fromkeys(_SEGMENTS, 30)),
    "segmentation_2310": Entry(2310, 19, dict.fromkeys(_SEGMENTS, 330)),
    "glass": Entry(214, 9, {1: 70, 2: 76, 3: 17, 5: 13, 6: 9, 7: 29}, openml=41, openml_labels=_GLASS),
    "euthyroid": Entry(3163, 25, {"negative": 2870, "sick-euthyroid": 293}),
    "euthyroid_2000": Entry(2000, 24, {"negative": 1762, "sick-euthyroid": 238}),
    "yeast": Entry(1484, 8, _YEAST, openml=181),
    "reuters5": Entry(736, 1, kind="texts"),
    "shuttle": Entry(58000, 9, _SHUTTLE),
    "creditcard_part": Entry(3709, 30, {0: 3217, 1: 492}),
    "elec2": Entry(45312, 8, {"DOWN": 26075, "UP": 19237}, openml=151),
    "kdd99_10pct": Entry(494021, 41),
    "kdd99_smtp": Entry(95156, 3, {0: 95126, 1: 30}),
    "kdd99_http": Entry(567498, 3, {0: 565287, 1: 2211}),
    "nsl_kdd_train20": Entry(25192, 42),
    "nsl_kdd_test": Entry(22544, 42),
    "mammography": Entry(11183, 6, {-1: 10923, 1: 260}, openml=310, openml_labels={"-1": -1, "1": 1}),
    "oil_spill": Entry(937, 49, {0: 896, 1: 41}),
    "weather": Entry(18159, 8, {0: 12461, 1: 5698}),
    "phishing": Entry(1250, 9, {0: 702, 1: 548}),
    **{f"koil_{name}": _koil(*shape) for name, shape in _KOIL_SETS.items()},
}
