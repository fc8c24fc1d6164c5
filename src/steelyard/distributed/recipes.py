"""Extraction of the task graph of each partition of a Dask collection.

If loading and learning are separate tasks, several partitions are loaded before the first one is learned,
which needs more memory. With the task graph of a partition, a worker loads and learns it in one task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dask
from dask.core import get_dependencies
from dask.utils import ensure_dict

import distributed

_EXTERNAL = object()  # placeholder key of results that the graph does not compute


class Recipe:
    """Tasks that compute one partition of a Dask collection.

    Parameters
    ----------
    graph : mapping
        Tasks by key; closed under dependencies.
    keys : sequence
        Keys of the results that form the partition; None means the value None.
    """

    def __init__(self, graph: Mapping[Any, Any], keys: Sequence[Any]) -> None:
        self.graph = graph
        self.keys = keys

    def make(self) -> tuple[Any, ...]:
        """Run the tasks in this process."""
        wanted = [key for key in self.keys if key is not None]
        values = iter(dask.get(dict(self.graph), wanted))
        return tuple(None if key is None else next(values) for key in self.keys)


def find_recipes(parts: Sequence[tuple[Any, ...]]) -> list[Recipe | None]:
    """Return the recipe of each part, a tuple whose items are delayed values or None.

    A part has no recipe (None) if it shares tasks with another part or depends on results that are stored on
    a cluster. The scheduler then runs its tasks.
    """
    graph = _common_graph(parts)
    owner: dict[Any, int] = {}
    needed: list[set[Any]] = []
    shared: set[int] = set()
    for number, part in enumerate(parts):
        keys = {value.key for value in part if value is not None}
        needed.append(set())
        while keys:
            key = keys.pop()
            if key in needed[number]:
                continue
            needed[number].add(key)
            if owner.setdefault(key, number) != number:
                shared |= {number, owner[key]}
            elif key not in graph:
                shared.add(number)
            else:
                keys |= _dependencies(graph, key)
    return [
        None
        if number in shared
        else Recipe(
            {key: graph[key] for key in needed[number]},
            [None if value is None else value.key for value in part],
        )
        for number, part in enumerate(parts)
    ]


def _common_graph(parts: Sequence[tuple[Any, ...]]) -> dict[Any, Any]:
    """Return the union of the task graphs of all parts."""
    graphs = {id(value.dask): value.dask for part in parts for value in part if value is not None}
    common: dict[Any, Any] = {}
    for graph in graphs.values():
        common.update(ensure_dict(graph))
    return common


def _dependencies(graph: Mapping[Any, Any], key: Any) -> set[Any]:
    """Return the keys that a task depends on; a special key represents results stored on a cluster."""
    task = graph[key]
    if _contains_future(task):
        return {_EXTERNAL}
    # Dask tasks have an attribute ``dependencies``; in older versions they are tuples.
    return set(task.dependencies) if hasattr(task, "dependencies") else get_dependencies(graph, key)


def _contains_future(task: Any) -> bool:
    if isinstance(task, (tuple, list, set)):
        return any(map(_contains_future, task))
    if isinstance(task, dict):
        return any(map(_contains_future, task.values()))
    return isinstance(task, distributed.Future)
