"""Models are saved to and loaded from a local MLflow folder."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from steelyard import ProximalSVC

mlflow = pytest.importorskip(
    "mlflow", reason="the extra mlflow is not installed: it is large, and no part of the extra dev"
)

from steelyard.mlflow import load_model, log_model, save_model  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")  # MLflow emits warnings of its own


@pytest.fixture
def model():
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    return ProximalSVC().fit(pd.DataFrame(rng.normal(size=(200, 2)) + y[:, None], columns=["a", "b"]), y)


@pytest.fixture
def rows():
    return pd.DataFrame(np.random.default_rng(1).normal(size=(50, 2)), columns=["a", "b"])


def test_saved_mlflow_folder_loads_as_model_and_pyfunc(model, rows, tmp_path):
    folder = str(tmp_path / "model")
    save_model(model, folder)
    assert load_model(folder).digest() == model.digest()
    answers = mlflow.pyfunc.load_model(folder).predict(rows)
    np.testing.assert_array_equal(answers, model.predict(rows))


def test_model_logged_to_mlflow_loads_from_tracking_folder(model, rows, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'tracking.db'}")
    mlflow.set_experiment(experiment_id=mlflow.create_experiment("e", (tmp_path / "artifacts").as_uri()))
    with mlflow.start_run():
        info = log_model(model, "scales")
    assert list((tmp_path / "artifacts").rglob("model.steelyard"))
    assert load_model(info.model_uri).digest() == model.digest()
    answers = mlflow.pyfunc.load_model(info.model_uri).predict(rows)
    np.testing.assert_array_equal(answers, model.predict(rows))
