"""Dask: the result equals a local fit for every partitioning, also if a worker is killed."""

from __future__ import annotations

import os
import signal
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

from steelyard import ProximalSVC, RandomFeatures
from steelyard.exceptions import DataError, DataTypeError, NotFittedError, ParameterError
from steelyard.proximal import Quantizer
from tests.distributed.data import CUTS, SynchronousClient, assert_same_model, one_machine, rows_and_cuts
from tests.proximal.data import imbalanced

dask = pytest.importorskip("dask", reason="Dask is not installed")
distributed = pytest.importorskip("distributed", reason="Dask's distributed scheduler is not installed")
da = pytest.importorskip("dask.array", reason="the extra dask is not installed")
dd = pytest.importorskip("dask.dataframe", reason="the extra dask is not installed")
pd = pytest.importorskip("pandas", reason="the extra tables is not installed")

from steelyard.distributed import dask as engine  # noqa: E402  # after the checks above

pytestmark = pytest.mark.xdist_group("dask")  # one cluster for the module


@pytest.fixture(scope="module", autouse=True)
def client():
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")
    with cluster, distributed.Client(cluster) as client:
        yield client


def delayed_parts(values, cuts):
    return [dask.delayed(part) for part in np.split(values, cuts)]


def dask_array(X, cuts):
    sizes = tuple(len(part) for part in np.split(np.arange(len(X)), cuts))
    return da.from_array(X, chunks=(sizes, *((size,) for size in X.shape[1:])))


# -- equality with a local fit --------------------------------------------------------------------------


@pytest.mark.parametrize("cut", CUTS)
def test_fit_with_any_partitioning_equals_local_fit(rng, cut):
    X, y, cuts = rows_and_cuts(rng, cut)
    model = engine.fit(ProximalSVC(C=3.0), delayed_parts(X, cuts), delayed_parts(y, cuts))
    assert_same_model(model, one_machine(X, y, C=3.0))


@pytest.mark.parametrize("C", [0.5, "auto"])
def test_fit_of_dask_array_equals_local_fit(rng, C):
    X, y, cuts = rows_and_cuts(rng, "skewed, with single rows")
    model = engine.fit(ProximalSVC(C=C), dask_array(X, cuts), dask_array(y, [100, 400]))
    assert_same_model(model, one_machine(X, y, C=C))
    assert model.C_ == one_machine(X, y, C=C).C_


def test_fit_of_dask_array_with_column_chunks_equals_local_fit(rng):
    X, y = imbalanced(rng)
    model = engine.fit(ProximalSVC(), da.from_array(X, chunks=(70, 2)), y)
    assert_same_model(model, one_machine(X, y))


def test_fit_of_dask_dataframe_equals_local_fit_and_keeps_feature_names(rng):
    X, y = imbalanced(rng)
    frame = pd.DataFrame(X, columns=list("abcde")).assign(label=np.where(y, "fraud", "ok"))
    model = engine.fit(ProximalSVC(), dd.from_pandas(frame, npartitions=4), "label")
    assert_same_model(model, one_machine(frame[list("abcde")], frame["label"]))
    assert list(model.feature_names_in_) == list("abcde")


def test_fit_with_weight_column_equals_local_fit(rng):
    X, y = imbalanced(rng)
    weight = rng.integers(1, 4, len(y)).astype(float)
    frame = pd.DataFrame(X, columns=list("abcde")).assign(y=y, often=weight)
    model = engine.fit(ProximalSVC(), dd.from_pandas(frame, npartitions=3), "y", "often")
    assert_same_model(model, ProximalSVC().fit(frame[list("abcde")], y, weight))


def test_fit_unknown_label_column_raises_with_name(rng):
    frame = pd.DataFrame(imbalanced(rng)[0], columns=list("abcde"))
    with pytest.raises(DataError, match="no column 'label'"):
        engine.fit(ProximalSVC(), dd.from_pandas(frame, npartitions=2), "label")


def test_fit_column_name_without_dataframe_raises(rng):
    with pytest.raises(DataTypeError, match="names of label and weight columns require a dask dataframe"):
        engine.fit(ProximalSVC(), dask_array(imbalanced(rng)[0], []), "label")


# -- adding and forgetting rows in one update -----------------------------------------------------------


@pytest.mark.parametrize("C", [1.0, "auto"])
def test_update_equals_local_update(rng, C):
    X, y = imbalanced(rng, 440)
    old, new, gone = slice(300), slice(300, None), slice(100)
    expected = one_machine(X[old], y[old], C=C).update(add=(X[new], y[new]), forget=(X[gone], y[gone]))
    model = engine.fit(ProximalSVC(C=C), delayed_parts(X[old], [120]), delayed_parts(y[old], [120]))
    cuts = [[30, 60, 90], [50]]  # more partitions to add than to forget
    engine.update(
        model,
        add=(delayed_parts(X[new], cuts[0]), delayed_parts(y[new], cuts[0])),
        forget=(delayed_parts(X[gone], cuts[1]), delayed_parts(y[gone], cuts[1])),
    )
    assert_same_model(model, expected)
    assert_same_model(model, one_machine(X[100:], y[100:], C=C))


@pytest.mark.parametrize("side", ["add", "forget"])
def test_update_with_only_add_or_only_forget_equals_local_update(rng, side):
    X, y = imbalanced(rng, 440)
    model = engine.fit(ProximalSVC(), dask_array(X[:300], [100]), y[:300])
    rows = (X[300:], y[300:]) if side == "add" else (X[200:300], y[200:300])
    engine.update(model, **{side: (dask_array(rows[0], [40]), rows[1])})
    end = len(X) if side == "add" else 200
    assert_same_model(model, one_machine(X[:end], y[:end]))


def test_update_forgetting_unknown_rows_raises_and_keeps_state(rng):
    X, y = imbalanced(rng, 440)
    model = engine.fit(ProximalSVC(), dask_array(X[:200], [100]), y[:200])
    before = one_machine(X[:200], y[:200])
    strangers = (dask_array(X[:200] + 50.0, [100]), y[:200])
    with pytest.raises(DataError, match="update"):
        engine.update(model, add=(dask_array(X[200:], [50]), y[200:]), forget=strangers)
    assert_same_model(model, before)
    with pytest.raises(ParameterError, match="rows to add, rows to forget, or both"):
        engine.update(model)
    with pytest.raises(ParameterError, match=r"add must be a tuple \(X, y\)"):
        engine.update(model, add=dask_array(X, [50]))


def test_update_sends_one_message_per_dask_partition(rng, client):
    X, y = imbalanced(rng, 440)
    model = engine.fit(ProximalSVC(), dask_array(X[:300], [100, 200]), y[:300])
    parts = {"add": dask_array(X[300:], [40, 80]), "forget": dask_array(X[:90], [30, 60])}
    labels = {"add": y[300:], "forget": y[:90]}
    tasks = names_of_tasks(
        client, lambda: engine.update(model, **{name: (parts[name], labels[name]) for name in parts})
    )
    assert tasks.count("learn") == 3
    assert_same_model(model, one_machine(X[90:], y[90:]))


def names_of_tasks(client, run):
    """Return the sorted function names of all tasks that the cluster ran."""
    with distributed.get_task_stream(client) as stream:
        run()
        client.run(lambda: None)  # wait until all tasks are reported
    return sorted(dask.utils.key_split(task["key"]) for task in stream.data)


def a_grid(n_features):
    return Quantizer.uniform(n_features, 2.0**-36)


def test_digest_with_any_partitioning_equals_local_digest(rng, client):
    X, y = imbalanced(rng, 900)
    alone = ProximalSVC().fit(X, y)
    for n_parts in (2, 3, 30):  # with 30 parts, several contain the first 256 rows
        borders = np.linspace(0, 900, n_parts + 1).astype(int)
        pieces = [slice(begin, end) for begin, end in pairwise(borders)]
        model = engine.fit(ProximalSVC(), [dask.delayed((X[p], y[p])) for p in pieces], client=client)
        assert model.digest() == alone.digest()
        np.testing.assert_array_equal(model.coef_, alone.coef_)


def test_fit_loads_and_learns_rows_in_one_task(rng, client):
    X, y = imbalanced(rng)
    parts = [dask.delayed(lambda i: (X[i::4], y[i::4]))(i) for i in range(4)]
    tasks = names_of_tasks(client, lambda: engine.fit(ProximalSVC(quantizer=a_grid(5)), parts))
    assert tasks == ["learn"] * 4 + ["merge_parts"]


def test_fit_with_derived_labels_loads_rows_once(client, tmp_path):
    def load(block_info=None):
        place = block_info[None]["chunk-location"][0]
        with (tmp_path / str(place)).open("a") as times:
            times.write("x")
        return np.random.default_rng(place).normal(size=(50, 3))

    X = da.map_blocks(load, chunks=((50,) * 4, (3,)), dtype=float, meta=np.empty((0, 0)))
    y = (X[:, 0] > 1.0).astype(int)
    tasks = names_of_tasks(client, lambda: engine.fit(ProximalSVC(quantizer=a_grid(3)), X, y))
    assert tasks == ["learn"] * 4 + ["merge_parts"]
    assert [path.read_text() for path in sorted(tmp_path.iterdir())] == ["x"] * 4


def test_fit_computes_input_shared_by_several_partitions_once(rng, client):
    X, y = imbalanced(rng)
    source = dask.delayed(lambda: (X, y))()
    parts = [dask.delayed(lambda s, i: (s[0][i::4], s[1][i::4]))(source, i) for i in range(4)]
    models = []
    model = ProximalSVC(quantizer=a_grid(5))
    tasks = names_of_tasks(client, lambda: models.append(engine.fit(model, parts)))
    assert tasks == ["lambda"] * 5 + ["learn"] * 4 + ["merge_parts"]
    assert_same_model(models[0], one_machine(X, y))


def test_fit_of_persisted_rows_equals_local_fit(rng, client):
    X, y = imbalanced(rng)
    futures = client.scatter([(X[i::4], y[i::4]) for i in range(4)])
    for parts in ([dask.delayed(future) for future in futures], [dask.delayed(tuple)(f) for f in futures]):
        assert_same_model(engine.fit(ProximalSVC(), parts), one_machine(X, y))
    kept = dask_array(X, [100]).persist()
    assert_same_model(engine.fit(ProximalSVC(), kept, y), one_machine(X, y))


def test_fit_with_empty_partitions_equals_local_fit(rng):
    X, y = imbalanced(rng)
    frame = pd.DataFrame(X, columns=list("abcde")).assign(y=y)
    rows = dd.from_pandas(frame, npartitions=5)
    rows = rows[rows["a"] > frame["a"].median()]
    kept = frame[frame["a"] > frame["a"].median()]
    model = engine.fit(ProximalSVC(), rows[list("abcde")], rows["y"])
    assert_same_model(model, one_machine(kept[list("abcde")], kept["y"]))


def test_fit_with_weights_equals_local_fit(rng):
    X, y = imbalanced(rng)
    weight = rng.integers(0, 4, len(y)).astype(float)
    model = engine.fit(ProximalSVC(), dask_array(X, [100]), y, weight)
    assert_same_model(model, ProximalSVC().fit(X, y, weight))


def test_fit_of_sparse_partitions_equals_local_fit(rng):
    X, y = imbalanced(rng, 400, 30)
    X[rng.random(X.shape) < 0.9] = 0.0
    parts = [dask.delayed(sp.csr_matrix(part)) for part in np.split(X, [10, 11, 200])]
    model = engine.fit(ProximalSVC(), parts, delayed_parts(y, [10, 11, 200]))
    assert_same_model(model, one_machine(X, y))


def test_fit_of_arrow_partitions_equals_local_fit(rng):
    X, y = imbalanced(rng)
    frame = pd.DataFrame(X, columns=list("abcde"))
    tables = [dask.delayed(pa.Table.from_pandas(part)) for part in (frame[:50], frame[50:])]
    labels = [dask.delayed(pa.array(part)) for part in (y[:50], y[50:])]
    assert_same_model(engine.fit(ProximalSVC(), tables, labels), one_machine(frame, y))


def test_fit_of_delayed_tuples_equals_local_fit(rng):
    X, y = imbalanced(rng)
    parts = [dask.delayed(lambda i: (X[i::3], y[i::3]))(i) for i in range(3)]
    assert_same_model(engine.fit(ProximalSVC(), parts), one_machine(X, y))


def test_fit_of_delayed_partition_without_labels_raises(rng):
    with pytest.raises(DataTypeError, match=r"partition 0: .* must be a tuple .* got ndarray"):
        engine.fit(ProximalSVC(quantizer=a_grid(5)), [dask.delayed(imbalanced(rng)[0])])


def test_data_dependent_feature_map_is_fitted_once_for_all_workers(rng):
    X, y = imbalanced(rng, 400)
    parts = [dask.delayed((X[:0], y[:0])), *(dask.delayed((X[i::2], y[i::2])) for i in range(2))]
    model = engine.fit(ProximalSVC(feature_map=RandomFeatures(30)), parts)
    first = np.concatenate([X[::2], X[1::2]])  # the partitions with the first 256 rows
    fresh = ProximalSVC(feature_map=RandomFeatures(30).fit(first)).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), fresh.decision_function(X), rtol=0, atol=1e-9)


def test_fit_without_client_uses_temporary_local_cluster(rng, monkeypatch):
    def no_client():
        raise ValueError("No clients found")

    monkeypatch.setenv("STEELYARD_NUM_THREADS", "1")  # one worker is enough
    clusters = []
    local_cluster = distributed.LocalCluster
    monkeypatch.setattr(distributed, "default_client", no_client)
    monkeypatch.setattr(
        distributed,
        "LocalCluster",
        lambda **options: clusters.append(local_cluster(**options)) or clusters[0],
    )
    X, y = imbalanced(rng)
    assert_same_model(engine.fit(ProximalSVC(), dask_array(X, [100]), y), one_machine(X, y))
    assert [cluster.status.name for cluster in clusters] == ["closed"]


def test_fit_with_large_feature_offset_equals_local_fit(rng):
    X, y = imbalanced(rng, 4000, 4)
    X[:, 2] += 1.7e9  # the offset of a timestamp
    model = engine.fit(ProximalSVC(), dask_array(X, [7, 2000]), y)
    fresh = one_machine(X, y)
    np.testing.assert_allclose(model.decision_function(X), fresh.decision_function(X), rtol=1e-6, atol=1e-6)


def test_fit_of_several_models_shares_one_pass(rng):
    X, y = imbalanced(rng, 600)
    reads = []

    def read(i):
        reads.append(i)
        return X[i::4], y[i::4]

    quantizer = a_grid(5)  # without a given quantizer, the first partition is read twice
    models = [
        ProximalSVC(C=0.1, quantizer=quantizer),
        ProximalSVC(C=10.0, class_weight=None, quantizer=quantizer),
        ProximalSVC(C="auto", quantizer=quantizer),
    ]
    with dask.config.set(scheduler="synchronous"):
        parts = [dask.delayed(read)(i) for i in range(4)]
        engine.fit(models, parts, client=SynchronousClient())
    assert sorted(reads) == [0, 1, 2, 3]
    for model in models:
        assert_same_model(model, one_machine(X, y, **model.get_params(deep=False)))


# -- histories ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("C", [1.0, "auto"])
def test_partial_fit_and_forget_equal_fit_on_remaining_rows(rng, C):
    X, y = imbalanced(rng, 900, 5, (0.6, 0.3, 0.1))
    model = engine.fit(ProximalSVC(C=C), dask_array(X[:500], [50]), y[:500])
    engine.partial_fit(model, dask_array(X[500:], [100, 100, 300]), y[500:])
    engine.forget(model, dask_array(X[200:400], [1, 90]), y[200:400])
    kept = np.r_[0:200, 400:900]
    assert_same_model(model, one_machine(X[kept], y[kept], C=C), 1e-9)


def test_fit_discards_previous_rows(rng):
    X, y = imbalanced(rng)
    names = pd.DataFrame(X[:, :3], columns=list("abc"))
    model = engine.fit(ProximalSVC().fit(names, y), dask_array(X, [100]), y)
    assert_same_model(model, one_machine(X, y))
    assert not hasattr(model, "feature_names_in_")


def test_forget_unknown_rows_raises_and_keeps_state(rng):
    X, y = imbalanced(rng)
    model = one_machine(X, y)
    before = model.statistics_.to_bytes()
    with pytest.raises(DataError, match=r"forget: some rows of class 0 .* never learned"):
        engine.forget(model, dask_array(50.0 * X[:200], [100]), y[:200])
    assert model.statistics_.to_bytes() == before


# -- errors ---------------------------------------------------------------------------------------------


def test_fit_with_nan_raises_with_partition_and_column_and_keeps_models(rng):
    X, y = imbalanced(rng)
    models = [one_machine(X, y), one_machine(X, y, C="auto")]
    before = [model.statistics_.to_bytes() for model in models]
    bad = pd.DataFrame(X, columns=["age", "amount", "hour", "place", "days"])
    bad.loc[130, "amount"] = np.nan
    rows = dd.from_pandas(bad.assign(y=y), npartitions=3)
    with pytest.raises(
        DataError, match=r"fit: partition 1: X has NaN in row 30, column 1 \('amount'\).*nothing was changed"
    ):
        engine.fit(models, rows, "y")
    assert [model.statistics_.to_bytes() for model in models] == before


def test_fit_with_infinite_value_in_sparse_part_raises_with_column(rng):
    X, y = imbalanced(rng, 100)
    X[70, 3] = np.inf
    parts = [dask.delayed(sp.csr_matrix(part)) for part in np.split(X, [50])]
    with pytest.raises(DataError, match=r"partition 1: X has inf .* in row 20, column 3"):
        engine.fit(ProximalSVC(), parts, delayed_parts(y, [50]))


def test_fit_with_partition_of_other_width_raises_with_partition_number(rng):
    X, y = imbalanced(rng)
    model = one_machine(X, y)
    parts = [dask.delayed(X[:10]), dask.delayed(X[10:20, :4])]
    with pytest.raises(DataError, match="partition 1: X has 4 features, but ProximalSVC is expecting 5"):
        engine.partial_fit(model, parts, delayed_parts(y[:20], [10]))


def test_fit_without_rows_raises(rng):
    with pytest.raises(DataError, match="all partitions are empty"):
        engine.fit(ProximalSVC(), [dask.delayed(np.empty((0, 3)))], [dask.delayed(np.empty(0, int))])


def test_fit_with_differently_chunked_labels_raises(rng):
    X, y = imbalanced(rng)
    with pytest.raises(DataError, match="X has 2 partitions, but y has 3"):
        engine.fit(ProximalSVC(), delayed_parts(X, [9]), delayed_parts(y, [9, 20]))


def test_fit_of_in_memory_rows_raises(rng):
    X, y = imbalanced(rng)
    with pytest.raises(
        DataTypeError, match=r"list of delayed parts; got ndarray(.|\n)*call the method of the model"
    ):
        engine.fit(ProximalSVC(), X, y)


def test_fit_of_non_mergeable_learner_raises(rng):
    with pytest.raises(DataTypeError, match=r"expected a ProximalSVC .* got object"):
        engine.fit(object(), *imbalanced(rng))


def test_forget_before_fit_raises(rng):
    X, y = imbalanced(rng)
    with pytest.raises(NotFittedError, match="forget"):
        engine.forget(ProximalSVC(), dask_array(X, []), y)


def dies_once(X, y, marker):
    """Return the rows. The first worker that calls this function kills itself."""
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return X, y


def test_fit_with_killed_worker_gives_same_result(rng, tmp_path, client):
    X, y = imbalanced(rng, 1200, 8)
    workers = set(client.scheduler_info()["workers"])
    parts = [
        dask.delayed(dies_once)(X[i::6], y[i::6], tmp_path / "died" if i == 3 else tmp_path) for i in range(6)
    ]
    undisturbed = [dask.delayed((X[i::6], y[i::6])) for i in range(6)]
    model = engine.fit(ProximalSVC(), parts)
    assert (tmp_path / "died").exists()
    assert model.statistics_.to_bytes() == engine.fit(ProximalSVC(), undisturbed).statistics_.to_bytes()
    client.wait_for_workers(2)
    assert set(client.scheduler_info()["workers"]) != workers


# -- predictions ----------------------------------------------------------------------------------------


def test_predict_of_dask_array_is_lazy_and_equals_local_predict(rng):
    X, y = imbalanced(rng)
    model = one_machine(X, np.where(y, "fraud", "ok"))
    lazy = engine.predict(model, dask_array(X, [0, 100, 101]))
    assert isinstance(lazy, da.Array)
    answers = model.predict(X)
    model.fit(X, y)  # must not change the lazy predictions
    np.testing.assert_array_equal(lazy.compute(), answers)


def test_predict_of_dataframe_keeps_index(rng):
    X, y = imbalanced(rng)
    frame = pd.DataFrame(X, columns=list("abcde"), index=np.arange(1000, 1300))
    model = one_machine(frame, y)
    answers = engine.predict(model, dd.from_pandas(frame, npartitions=3)).compute()
    pd.testing.assert_series_equal(answers, pd.Series(model.predict(frame), frame.index, name="prediction"))


def test_predict_of_delayed_parts_returns_delayed_parts(rng):
    X, y = imbalanced(rng)
    model = one_machine(X, y)
    answers = dask.compute(*engine.predict(model, delayed_parts(X, [0, 100])))
    np.testing.assert_array_equal(np.concatenate(answers), model.predict(X))


def test_predict_before_fit_raises(rng):
    with pytest.raises(NotFittedError, match="predict"):
        engine.predict(ProximalSVC(), dask_array(imbalanced(rng)[0], []))


def test_cross_validate_with_too_few_folds_raises(rng):
    X, y = imbalanced(rng)
    with pytest.raises(ParameterError, match="folds must be an integer of at least 2; got 1"):
        engine.cross_validate(ProximalSVC(), dask_array(X, []), y, 1)
    with pytest.raises(ParameterError, match='folds must be an integer of at least 3 with C="auto"; got 2'):
        engine.cross_validate(ProximalSVC(C="auto"), dask_array(X, []), y, 2)


def test_cross_validate_is_independent_of_partitions(rng):
    X, y = imbalanced(rng, 600)
    model = ProximalSVC(C="auto")
    once, many = (engine.cross_validate(model, dask_array(X, cuts), y, 4) for cuts in ([], [5, 300]))
    assert once.keys() == many.keys()
    for name, values in once.items():
        np.testing.assert_allclose(many[name], values, rtol=1e-9)
    assert not hasattr(model, "coef_")
