"""Shared parts of the experiments: learners, stages and face data."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from papers.arrays import Floats, Labels
from papers.context import Context
from steelyard.datasets import Dataset
from steelyard.proximal import ProximalSVC
from steelyard.svm import IncrementalSVC

__all__ = [
    "LEARNERS",
    "N_STAGES",
    "THESIS",
    "People",
    "answers_by_stage",
    "crowds",
    "learner",
    "stages",
]

THESIS = "DCIL-IncLPSVM thesis"
N_STAGES = 10  # a first tenth of the data, then nine subsets

# The thesis states neither C nor a scaling. Unscaled features and C = 1 reproduce its numbers (table 5.3).
_MAKE: dict[str, Callable[[], Any]] = {
    "IncSVM": lambda: IncrementalSVC(C=1.0, kernel="linear"),
    "IncLPSVM": lambda: ProximalSVC(C=1.0, class_weight=None, standardize=False),
    "DCIL-IncLPSVM": lambda: ProximalSVC(C=1.0, class_weight="balanced", standardize=False),
}
LEARNERS = tuple(_MAKE)


def learner(name: str) -> Any:
    """Return a new learner by its name in the thesis."""
    return _MAKE[name]()


def stages(rows: NDArray[np.intp], rng: np.random.Generator) -> list[NDArray[np.intp]]:
    """Return the rows in random order, split into ten equal parts."""
    return np.array_split(rng.permutation(rows), N_STAGES)


def answers_by_stage(
    name: str, X: Floats, y: Labels, chunks: Iterable[NDArray[np.intp]], asked: NDArray[np.intp]
) -> Iterator[NDArray[Any]]:
    """Return the predictions for the test rows `asked` after each chunk of training rows."""
    model = learner(name)
    classes = np.unique(y[asked]).tolist()
    for chunk in chunks:
        with warnings.catch_warnings():
            # Hundreds of classes with one or two rows each are intended here.
            warnings.filterwarnings("ignore", message="The number of unique classes is greater than 50%")
            if len(chunk):
                model.partial_fit(X[chunk], y[chunk], classes=classes)
        yield model.predict(X[asked])


@dataclass(frozen=True, eq=False)
class People:
    """Images of people, one row per image."""

    name: str
    images: Floats
    person: Labels
    n_people: int
    share_tested: int  # one in `share_tested` images of a person is a test image

    def some(self, n_people: int, every: int) -> People:
        """Return the first ``n_people`` people, with every ``every``-th pixel of their images."""
        rows = self.person < n_people
        return People(self.name, self.images[rows, ::every], self.person[rows], n_people, self.share_tested)

    def split(self, chosen: NDArray[np.intp], rng: np.random.Generator) -> tuple[Labels, Labels]:
        """Return training and test rows of ``chosen`` people: one in ``share_tested`` images is tested."""
        learned, asked = [], []
        for one in chosen:
            rows = rng.permutation(np.flatnonzero(self.person == one))
            held_out = len(rows) // self.share_tested
            asked.append(rows[:held_out])
            learned.append(rows[held_out:])
        return np.concatenate(learned), np.concatenate(asked)


def crowds(context: Context, noise: float) -> Iterator[People]:
    """Yield the ORL faces, if available, and generated people, as many as in the thesis."""
    for _, faces in context.sets(["faces_orl"]):
        people = _orl(faces)
        yield people.some(12, every=16) if context.tiny else people
    yield generated_people(context.pick(271, 271, 42), context.rng("people"), noise=noise)


def _orl(faces: Dataset) -> People:
    """Return the images, reduced to 28 x 23 pixels by averaging, with values from 0 to 1."""
    n, height, width = faces.X.shape
    small = faces.X.reshape(n, height // 4, 4, width // 4, 4).mean(axis=(2, 4)) / 255.0
    person = np.unique(faces.y, return_inverse=True)[1].astype(np.int64)
    return People("ORL faces", small.reshape(n, -1), person, int(person.max()) + 1, 5)


def generated_people(
    n_people: int, rng: np.random.Generator, *, noise: float, width: int = 120, n_images: int = 5
) -> People:
    """Return generated people. Persons, and the images of a person, are normally distributed.

    `noise` is the standard deviation of the images of a person in each dimension, divided by the standard
    deviation between persons.
    """
    faces = rng.normal(size=(n_people, width))
    person = np.repeat(np.arange(n_people, dtype=np.int64), n_images)
    images = faces[person] + noise * rng.normal(size=(len(person), width))
    return People("generated people", images / np.sqrt(width), person, n_people, 5)
