"""Context of an experiment: data, random numbers, processes and a progress callback."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np

from papers.cells import Cell, Cells, Key
from steelyard import datasets
from steelyard._threads import one_thread
from steelyard.datasets import Dataset, Splits
from steelyard.exceptions import DatasetUnavailable

__all__ = ["Context", "Progress"]

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Progress(Protocol):
    """Progress callback, called after each task with a name, the number of finished tasks and the total."""

    def __call__(self, what: str, done: int, total: int) -> None: ...


def _silent(what: str, done: int, total: int) -> None:
    """Ignore progress."""


@dataclass
class Context:
    """Inputs of an experiment.

    Attributes
    ----------
    data_dir : path, optional
        Folder of datasets, see :func:`steelyard.datasets.load`.
    quick : bool
        Use fewer rounds and stored parameters, so that all experiments together take minutes.
    tiny : bool
        Use as few rows and rounds as possible, to test that the code runs. Implies `quick`.
    seed : int
        Seed of all random generators.
    jobs : int
        Number of processes. With 1, everything runs in the current process.
    progress : callable
        Called after each task.
    load, load_splits : callable
        Functions that load data. Tests replace them, because they have no data.
    unavailable : list of str
        Messages about datasets that are not available, filled during the run.
    cells : Cells, optional
        Cache of the results of tasks.
    saved_seconds : float
        Total time that the results taken from `cells` took when they were computed.
    """

    data_dir: str | os.PathLike[str] | None = None
    quick: bool = False
    tiny: bool = False
    seed: int = 0
    jobs: int = 1
    progress: Progress = _silent
    load_set: Callable[[str], Dataset] | None = None
    load_runs: Callable[[str], Splits] | None = None
    unavailable: list[str] = field(default_factory=list)
    cells: Cells | None = None
    saved_seconds: float = 0.0

    def __post_init__(self) -> None:
        self.quick = self.quick or self.tiny

    def pick(self, full: Item, quick: Item, tiny: Item) -> Item:
        """Return one of three values: for a full, a quick or a tiny run."""
        return tiny if self.tiny else quick if self.quick else full

    def load(self, name: str) -> Dataset:
        """Return a dataset; raise :class:`~steelyard.exceptions.DatasetUnavailable` if it is missing."""
        if self.load_set is not None:
            return self.load_set(name)
        return datasets.load(name, data_dir=self.data_dir)

    def load_splits(self, name: str) -> Splits:
        """Return the authors' splits; raise :class:`~steelyard.exceptions.DatasetUnavailable` if missing."""
        if self.load_runs is not None:
            return self.load_runs(name)
        return datasets.load_splits(name, data_dir=self.data_dir)

    def sets(self, names: Iterable[str]) -> Iterator[tuple[str, Dataset]]:
        """Yield the available datasets by name. Add a message about each of the others to `unavailable`."""
        for name in names:
            try:
                dataset = self.load(name)
            except DatasetUnavailable as trouble:
                self.unavailable.append(trouble.summary)
                continue
            yield name, dataset

    def rng(self, *key: object) -> np.random.Generator:
        """Return the random generator of a key, which does not depend on the number of processes."""
        return np.random.default_rng([self.seed, zlib.crc32(repr(key).encode())])

    def integer(self, *key: object) -> int:
        """Return the integer seed of a key."""
        return int(self.rng(*key).integers(2**31))

    def map(
        self,
        function: Callable[[Item], Answer],
        items: Iterable[Item],
        what: str = "",
        *,
        key: Callable[[Item], Key] | None = None,
    ) -> Sequence[Answer]:
        """Return ``[function(item) for item in items]``, computed by `jobs` processes with one thread each.

        `function` and the items are sent to other processes, so `function` must be defined in a module. With
        `key`, which returns everything that a result depends on, each result is stored in `cells`; results
        must then be JSON.
        """
        work = list(items)
        answers: dict[int, Answer] = {}
        if key is not None and self.cells is not None:
            for place, item in enumerate(work):
                cell = self.cells.find(key(item))
                if cell is not None:
                    answers[place] = cell.answer
                    self.saved_seconds += cell.seconds
        open_places = [place for place in range(len(work)) if place not in answers]
        self.progress(what, len(answers), len(work))
        todo = [work[place] for place in open_places]
        timed = _answers(partial(_timed, function), todo, min(self.jobs, len(todo)))
        for place, (answer, seconds) in zip(open_places, timed, strict=True):
            answers[place] = answer
            if key is not None and self.cells is not None:
                self.cells.keep(key(work[place]), Cell(answer, seconds))
            self.progress(what, len(answers), len(work))
        return [answers[place] for place in range(len(work))]


def _timed(function: Callable[[Item], Answer], item: Item) -> tuple[Answer, float]:
    started = time.perf_counter()
    answer = function(item)
    return answer, time.perf_counter() - started


def _answers(function: Callable[[Item], Answer], work: list[Item], jobs: int) -> Iterable[Answer]:
    if jobs <= 1:
        return map(function, work)
    from joblib import Parallel, delayed, parallel_config

    with parallel_config(backend="loky", n_jobs=jobs, inner_max_num_threads=1):
        run: Any = Parallel(return_as="generator", batch_size=1, pre_dispatch="3*n_jobs")
        answers: Iterable[Answer] = run(delayed(_alone)(function, item) for item in work)
        return answers


def _alone(function: Callable[[Item], Answer], item: Item) -> Answer:
    with one_thread():
        return function(item)
