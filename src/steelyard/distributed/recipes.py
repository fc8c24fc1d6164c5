"""How the parts of a Dask collection are made, each by itself.

A scheduler that sees the loading and the learning of a partition as two tasks loads several partitions before
it learns the first: more memory, which is cold when it is read. With a recipe in hand a worker does both in
one task, and the rows are gone before the next ones come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dask
from dask.core import get_dependencies
from dask.utils import ensure_dict

import distributed

__all__ = ["Recipe", "find_recipes"]

_ELSEWHERE = object()  # the key of a result that no graph makes


class Recipe:
    """The tasks that make one part.

    Parameters
    ----------
    graph : mapping
        Tasks by key; they need no others.
    keys : sequence
        Which results make the part, in this order; None stands for itself.
    """

    def __init__(self, graph: Mapping[Any, Any], keys: Sequence[Any]) -> None:
        self.graph = graph
        self.keys = keys

    def make(self) -> tuple[Any, ...]:
        """Run the tasks here and now."""
        wanted = [key for key in self.keys if key is not None]
        values = iter(dask.get(dict(self.graph), wanted))
        return tuple(None if key is None else next(values) for key in self.keys)


def find_recipes(parts: Sequence[tuple[Any, ...]]) -> list[Recipe | None]:
    """Recipes of parts, which are tuples of delayed values and None.

    None for a part that shares work with another one or needs what a cluster holds already: there the tasks
    are better left to the scheduler.
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
                keys |= _needs(graph, key)
    return [
        None if number in shared else Recipe({key: graph[key] for key in needed[number]}, _keys_of(part))
        for number, part in enumerate(parts)
    ]


def _common_graph(parts: Sequence[tuple[Any, ...]]) -> dict[Any, Any]:
    """The tasks of all parts; many parts of a collection come with one and the same graph."""
    graphs = {id(value.dask): value.dask for part in parts for value in part if value is not None}
    common: dict[Any, Any] = {}
    for graph in graphs.values():
        common.update(ensure_dict(graph))
    return common


def _keys_of(part: tuple[Any, ...]) -> list[Any]:
    return [None if value is None else value.key for value in part]


def _needs(graph: Mapping[Any, Any], key: Any) -> set[Any]:
    """Keys that a task needs, also those of results that lie on a cluster."""
    task = graph[key]
    if _holds_future(task):
        return {_ELSEWHERE}
    # Tasks are objects that know what they need, or tuples as in older versions of Dask.
    return set(task.dependencies) if hasattr(task, "dependencies") else get_dependencies(graph, key)


def _holds_future(task: Any) -> bool:
    if isinstance(task, (tuple, list, set)):
        return any(map(_holds_future, task))
    if isinstance(task, dict):
        return any(map(_holds_future, task.values()))
    return isinstance(task, distributed.Future)
