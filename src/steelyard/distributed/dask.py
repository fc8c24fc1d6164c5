"""Training on Dask: workers compute and add statistics of partitions, and the client solves for the model.

Learning a partition and adding statistics are ordinary Dask tasks, so Dask handles failing workers. If there
is no active client, each call starts a ``LocalCluster``, which takes a second or two. A script must then call
these functions under ``if __name__ == "__main__":``.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np

from steelyard._threads import num_threads
from steelyard._validation import check_started
from steelyard.distributed.partitions import (
    MAP_ROWS,
    Message,
    Models,
    Pass,
    StatisticsConfig,
    as_rows,
    as_triple,
    fold_probe,
    learn_partition,
    merge_parts,
    n_rows,
    no_rows_error,
    stacked,
)
from steelyard.exceptions import DataError, DataTypeError, ParameterError
from steelyard.proximal import ProximalSVC
from steelyard.proximal.quantizer import QUANTIZER_ROWS

try:
    import dask
    from dask.core import get_dependencies
    from dask.utils import ensure_dict

    import distributed
except ImportError as error:  # pragma: no cover  # both are installed in the test environment
    raise ImportError("steelyard.distributed.dask needs Dask. hint: pip install 'steelyard[dask]'") from error

__all__ = ["cross_validate", "fit", "forget", "local_cluster", "partial_fit", "predict", "update"]

_MESSAGES_PER_REDUCTION = 4  # number of messages that one reduction task adds
# By default Dask profiles its workers, which takes a few percent of the CPU.
_WITHOUT_PROFILING = {"distributed.worker.profile.enabled": False, "distributed.admin.tick.interval": "1s"}


def fit(models: Models, X: Any, y: Any = None, sample_weight: Any = None, *, client: Any = None) -> Models:
    """Fit models on Dask collections. The result equals ``fit`` on one machine.

    Parameters
    ----------
    models : ProximalSVC or sequence of ProximalSVC
        Models to train in one pass over the rows. Models that differ only in C, weights or thresholds share
        the statistics.
    X : dask array, dask dataframe or list of delayed
        Rows. Blocks of an array may be dense or sparse; parts of a list may be arrays, sparse matrices,
        data frames or Arrow tables.
    y : dask array, dask series, array-like, list of delayed or str
        Labels, partitioned like the rows. For a dataframe, the name of its label column is also accepted.
        Use None if each delayed part is a tuple of rows, labels and optional weights.
    sample_weight : like y, optional
        Sample weights.
    client : distributed.Client, optional
        Client to use; default: the active client, or a new local cluster.

    Returns
    -------
    ProximalSVC or sequence of ProximalSVC
        ``models``, changed in place.

    Raises
    ------
    DataError
        If a value is not finite; the message names the partition and column. No model is changed.

    Examples
    --------
    >>> import dask.array as da
    >>> from steelyard import ProximalSVC
    >>> from steelyard.distributed import dask as steelyard_dask
    >>> X = da.random.default_rng(0).normal(size=(100_000, 20), chunks=(10_000, 20))
    >>> y = (X[:, 0] > 2.0).astype(int)
    >>> model = steelyard_dask.fit(ProximalSVC(), X, y)  # doctest: +SKIP
    """
    return _run(models, "fit", {"": (X, y, sample_weight)}, client)


def partial_fit(
    models: Models, X: Any, y: Any = None, sample_weight: Any = None, *, client: Any = None
) -> Models:
    """Learn more rows; the parameters are those of :func:`fit`."""
    return _run(models, "partial_fit", {"": (X, y, sample_weight)}, client)


def forget(models: Models, X: Any, y: Any = None, sample_weight: Any = None, *, client: Any = None) -> Models:
    """Forget rows that were learned before; the parameters are those of :func:`fit`."""
    return _run(models, "forget", {"": (X, y, sample_weight)}, client)


def update(
    models: Models,
    *,
    add: tuple[Any, ...] | None = None,
    forget: tuple[Any, ...] | None = None,
    client: Any = None,
) -> Models:
    """Learn some rows and forget others in one pass, atomically for all models.

    Each partition sends the sums of its rows to add and, separately, the sums of its rows to forget.
    (Algorithm 4 of Zhu et al., "Distributed Incremental wLPSVM Learning", sends their difference.)

    Parameters
    ----------
    models : ProximalSVC or sequence of ProximalSVC
        As for :func:`fit`; they must be fitted.
    add, forget : tuple of (X, y) or (X, y, sample_weight), optional
        Rows in the formats of :func:`fit`; a task processes one partition of each.
    client : distributed.Client, optional
        As for :func:`fit`.

    Returns
    -------
    ProximalSVC or sequence of ProximalSVC
        ``models``, changed in place.
    """
    if add is None and forget is None:
        raise no_rows_error()
    sides = {
        f" ({name})": None if rows is None else as_triple(rows, name, "update", ParameterError)
        for name, rows in (("add", add), ("forget", forget))
    }
    return _run(models, "update", sides, client)


def predict(model: ProximalSVC, X: Any) -> Any:
    """Predict labels lazily, as a Dask collection.

    Parameters
    ----------
    model : ProximalSVC
        The model. Its current state is used; later changes of the model have no effect.
    X : dask array, dask dataframe or list of delayed
        Rows.

    Returns
    -------
    dask array, dask series or list of delayed
        Labels, partitioned like the rows.
    """
    check_started(model, "predict")
    frozen = copy.deepcopy(model)
    dtype = frozen.classes_.dtype
    kind = _container(X, "predict")
    if kind == "list":
        shared = dask.delayed(frozen)
        return [dask.delayed(_predict_part)(part, shared) for part in X]
    if kind == "dataframe":
        import pandas as pd

        dtype = dtype if dtype.kind in "iufb" else np.dtype(object)
        meta = pd.Series(np.empty(0, dtype), name="prediction")
        return X.map_partitions(_predict_frame, frozen, meta=meta)
    rows = X.rechunk({1: -1})
    return rows.map_blocks(_predict_part, frozen, dtype=dtype, drop_axis=1, meta=np.empty(0, dtype))


def cross_validate(
    model: ProximalSVC,
    X: Any,
    y: Any = None,
    folds: int = 5,
    sample_weight: Any = None,
    *,
    client: Any = None,
) -> dict[str, Any]:
    """Cross-validate a model in one pass over the rows.

    A hash of the row selects its fold, so equal rows share a fold. The model is not changed.

    Parameters
    ----------
    model : ProximalSVC
        The model; with ``C="auto"``, C is chosen separately for each fold from the other folds.
    X, y, sample_weight, client
        As for :func:`fit`.
    folds : int, default=5
        Number of folds.

    Returns
    -------
    dict of str to ndarray of shape (folds,)
        Metrics per fold; see :meth:`steelyard.ProximalSVC.cross_validate`.
    """
    probe = fold_probe(model, folds)
    _run(probe, "fit", {"": (X, y, sample_weight)}, client)
    return model.cross_validate(probe.statistics())


def local_cluster(n_workers: int | None = None, **options: Any) -> Any:
    """Start a local cluster without worker profiling.

    Without an active client the functions of this module start such a cluster.

    Parameters
    ----------
    n_workers : int, optional
        Number of single-threaded processes; default: the number of threads that steelyard uses.
    **options
        Further arguments of :class:`distributed.LocalCluster`.

    Returns
    -------
    distributed.LocalCluster

    Examples
    --------
    >>> from distributed import Client
    >>> from steelyard.distributed.dask import local_cluster
    >>> with local_cluster(2) as cluster, Client(cluster) as client:  # doctest: +SKIP
    ...     model = steelyard_dask.fit(ProximalSVC(), X, y)
    """
    chosen = {"threads_per_worker": 1, "dashboard_address": ":0", **options}
    with dask.config.set(_WITHOUT_PROFILING):
        return distributed.LocalCluster(n_workers=n_workers or num_threads(), **chosen)


# -- one pass over the partitions --------------------------------------------------------------------


def _run(models: Any, method: str, sides: Mapping[str, Any], client: Any) -> Any:
    """Run a method. ``sides`` are collections of rows, by the text that names them in error messages."""
    work = Pass(models, method)
    parts = [[] if data is None else _parts(data, method) for data in sides.values()]
    with _engine(client) as engine:
        work.fit_maps(lambda: _first_rows(parts[0], engine))
        learn, merge = dask.delayed(partial(_learn, sides=list(sides))), dask.delayed(merge_parts)
        maps = [config.feature_map for config in work.configs]
        is_large = any(feature_map is not None and feature_map.is_fitted for feature_map in maps)
        configs = dask.delayed(work.configs) if is_large else work.configs  # large ones are sent only once
        tasks = zip_longest(*map(_task_inputs, parts), fillvalue=())
        level = [
            learn(configs, f"{method}: partition {number}", list(pieces))
            for number, pieces in enumerate(tasks)
        ]
        while len(level) > 1:  # tree reduction
            level = [
                merge(level[begin : begin + _MESSAGES_PER_REDUCTION])
                for begin in range(0, len(level), _MESSAGES_PER_REDUCTION)
            ]
        work.finish(engine.compute(level[0]).result())
    return models


@contextmanager
def _engine(client: Any) -> Iterator[Any]:
    """Yield the current Dask client, or that of a temporary local cluster."""
    if client is None:
        with suppress(ValueError):
            client = distributed.default_client()
    if client is not None:
        yield client
        return
    with local_cluster() as cluster, distributed.Client(cluster, set_as_default=False) as own:
        yield own


def _first_rows(parts: Sequence[tuple[Any, ...]], engine: Any) -> Any:
    """Return the rows of enough partitions to fit a quantizer, or None if there are no rows."""
    head = dask.delayed(_head)
    found: list[Any] = []
    for part in parts:
        rows = engine.compute(head(*part)).result()
        if n_rows(rows):
            found.append(rows)
        if sum(map(n_rows, found)) >= QUANTIZER_ROWS:
            break
    return stacked(found) if found else None


class _Recipe:
    """Tasks that compute one partition of a Dask collection, to be run in the process that learns it.

    As separate tasks, several partitions would be loaded before the first one is learned, which needs more
    memory.
    """

    def __init__(self, graph: Mapping[Any, Any], keys: Sequence[Any]) -> None:
        self.graph, self.keys = graph, keys

    def make(self) -> tuple[Any, ...]:
        values = iter(dask.get(dict(self.graph), [key for key in self.keys if key is not None]))
        return tuple(None if key is None else next(values) for key in self.keys)


def _task_inputs(parts: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the arguments of each partition's task: its recipe, or delayed values.

    A part has no recipe if it shares tasks with another part or depends on results that a cluster stores.
    """
    keys = [[None if value is None else value.key for value in part] for part in parts]
    sources = {id(value.dask): value.dask for part in parts for value in part if value is not None}
    graph: dict[Any, Any] = {}
    for source in sources.values():
        graph.update(ensure_dict(source))
    graphs = [_needed_tasks(graph, [key for key in part if key is not None]) for part in keys]
    n_uses = Counter(key for tasks in graphs for key in tasks)
    return [
        part
        if any(task is None or n_uses[key] > 1 or _contains_future(task) for key, task in tasks.items())
        else (_Recipe(tasks, part_keys),)
        for part, part_keys, tasks in zip(parts, keys, graphs, strict=True)
    ]


def _needed_tasks(graph: Mapping[Any, Any], keys: Sequence[Any]) -> dict[Any, Any]:
    """Return the tasks that compute results; the task of a result on a cluster is None."""
    tasks: dict[Any, Any] = {}
    waiting = list(keys)
    while waiting:
        key = waiting.pop()
        if key in tasks:
            continue
        task = tasks[key] = graph.get(key)
        if task is not None:  # tasks of older versions of Dask are tuples
            waiting += task.dependencies if hasattr(task, "dependencies") else get_dependencies(graph, key)
    return tasks


def _contains_future(task: Any) -> bool:
    if isinstance(task, dict):
        task = list(task.values())
    if isinstance(task, (tuple, list, set)):
        return any(map(_contains_future, task))
    return isinstance(task, distributed.Future)


def _learn(
    configs: Sequence[StatisticsConfig],
    where: str,
    pieces: Sequence[tuple[Any, ...]],
    *,
    sides: Sequence[str],
) -> list[Message]:
    """Return one message per side and configuration, which is None if the side has no rows."""
    messages: list[Message] = []
    for part, side in zip(pieces, sides, strict=True):
        if not part:
            messages += [None] * len(configs)
            continue
        if isinstance(part[0], _Recipe):
            part = part[0].make()
        messages += learn_partition(configs, *_unpacked(part, where + side), where + side)
    return messages


def _head(*part: Any) -> Any:
    return as_rows(_unpacked(part, "fit")[0])[:MAP_ROWS]


def _unpacked(part: tuple[Any, ...], where: str) -> tuple[Any, Any, Any]:
    """Return rows, labels and weights of a part, which is one tuple, or these values separately."""
    return part if len(part) == 3 else as_triple(part[0], "a delayed part without separate labels", where)


def _split(frame: Any, label: str, weight: str | None) -> tuple[Any, Any, Any]:
    """Return rows, labels and weights of a data frame that contains all of them."""
    rows = frame.drop(columns=[label] if weight is None else [label, weight])
    return rows, frame[label], None if weight is None else frame[weight]


# -- conversion of collections to partitions ------------------------------------------------------------


def _container(X: Any, method: str) -> str:
    if isinstance(X, (list, tuple)) and len(X) and all(dask.is_dask_collection(part) for part in X):
        return "list"
    if dask.is_dask_collection(X):
        if hasattr(X, "blocks") and hasattr(X, "rechunk"):
            return "array"
        if hasattr(X, "map_partitions") and hasattr(X, "columns"):
            return "dataframe"
    raise DataTypeError(
        f"X must be a dask array, a dask dataframe or a list of delayed parts; got {type(X).__name__}.",
        source=method,
        hint="for rows in memory call the method of the model",
    )


def _parts(data: tuple[Any, Any, Any], method: str) -> list[tuple[Any, ...]]:
    """Return rows, labels and weights of each partition as delayed values, or as one delayed tuple."""
    X, y, sample_weight = data
    kind = _container(X, method)
    if kind == "list" and y is None:
        return [(part,) for part in X]
    if y is None:
        raise DataError("labels y are needed; got None.", source=method)
    if isinstance(y, str):
        _check_names(kind, X, (y, sample_weight), method)
        split = dask.delayed(_split)
        return [(split(part, y, sample_weight),) for part in X.to_delayed()]
    rows, sizes = list(X) if kind == "list" else None, None
    if kind == "array":
        X = X.rechunk({1: -1})
        rows, sizes = _delayed(X), X.chunks[0]
    elif kind == "dataframe":
        rows = X.to_delayed()
    assert rows is not None
    labels = _partitioned(y, "y", len(rows), sizes, method)
    weights: list[Any] = [None] * len(rows)
    if sample_weight is not None:
        weights = _partitioned(sample_weight, "sample_weight", len(rows), sizes, method)
    return list(zip(rows, labels, weights, strict=True))


def _check_names(kind: str, X: Any, names: tuple[str, Any], method: str) -> None:
    if kind != "dataframe" or not all(name is None or isinstance(name, str) for name in names):
        raise DataTypeError(
            "names of label and weight columns require a dask dataframe; both must be names.",
            source=method,
        )
    missing = [name for name in names if name is not None and name not in X.columns]
    if missing:
        raise DataError(f"the dataframe has no column {missing[0]!r}.", source=method)


def _delayed(array: Any) -> list[Any]:
    """Return the blocks of an array as delayed values.

    The task graph is not optimized, so that rows are loaded only once if the labels are computed from them.
    """
    return np.ravel(array.to_delayed(optimize_graph=False)).tolist()


def _partitioned(values: Any, name: str, n_parts: int, sizes: Any, method: str) -> list[Any]:
    """Return labels or weights as one delayed value per partition."""
    if isinstance(values, (list, tuple)) and len(values) and dask.is_dask_collection(values[0]):
        parts = list(values)
    elif hasattr(values, "rechunk"):
        known = sizes is not None and not any(np.isnan(size) for size in sizes)
        if known and sum(values.chunks[0]) == sum(sizes):
            values = values.rechunk((sizes,))
        parts = _delayed(values)
    elif dask.is_dask_collection(values):
        parts = list(values.to_delayed())
    elif sizes is not None and len(values) == sum(sizes):
        borders = np.cumsum(sizes)[:-1].astype(int)
        parts = [dask.delayed(part) for part in np.split(np.asarray(values), borders)]
    else:
        raise DataTypeError(
            f"{name} must be partitioned like the rows, or be an array with one value per row of X; "
            f"got {type(values).__name__}.",
            source=method,
        )
    if len(parts) != n_parts:
        raise DataError(
            f"X has {n_parts} partitions, but {name} has {len(parts)}; nothing was changed.",
            source=method,
            hint="give X and the labels the same partitions, for example with repartition() or rechunk()",
        )
    return parts


def _predict_part(X: Any, model: ProximalSVC) -> Any:
    rows = as_rows(X)
    return model.predict(rows) if n_rows(rows) else np.empty(0, model.classes_.dtype)


def _predict_frame(X: Any, model: ProximalSVC) -> Any:
    import pandas as pd

    return pd.Series(_predict_part(X, model), index=X.index, name="prediction")
