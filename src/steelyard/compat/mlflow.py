"""MLflow flavor that stores models in the file format of this package, without pickle (extra ``mlflow``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from steelyard.exceptions import ParameterError
from steelyard.persistence import load, save
from steelyard.persistence.envelope import library_versions

__all__ = ["load_model", "log_model", "save_model"]

FLAVOR_NAME = "steelyard"
_FILE = "model.steelyard"


def save_model(model: Any, path: str, mlflow_model: Any = None, **description: Any) -> None:
    """Write a model to a folder that MLflow can load, also as ``pyfunc``.

    Parameters
    ----------
    model : Learner or TableModel
        Any object that :func:`steelyard.persistence.save` accepts.
    path : str
        A folder that does not exist or is empty.
    mlflow_model : mlflow.models.Model, optional
        The MLflow description to extend; MLflow passes it when a model is logged.
    **description : dict
        ``signature`` and ``metadata`` for the MLflow description.
    """
    from mlflow import pyfunc
    from mlflow.models import Model

    unknown = sorted(description.keys() - {"signature", "metadata"})
    if unknown:
        raise ParameterError(f"expected signature or metadata; got {unknown[0]!r}.", source="save_model")
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    version = library_versions()["steelyard"]
    described = Model() if mlflow_model is None else mlflow_model
    for name, value in description.items():
        setattr(described, name, value)
    save(model, folder / _FILE)
    (folder / "requirements.txt").write_text(f"steelyard=={version}\nmlflow\n", encoding="utf-8")
    described.add_flavor(FLAVOR_NAME, data=_FILE, steelyard_version=version, kind=type(model).__name__)
    pyfunc.add_to_model(described, loader_module=__name__, data=_FILE)
    described.save(str(folder / "MLmodel"))


def log_model(model: Any, name: str, **options: Any) -> Any:
    """Log a model to the active run.

    Parameters
    ----------
    model : Learner or TableModel
        Any object that :func:`steelyard.persistence.save` accepts.
    name : str
        Name of the model in the run.
    **options : dict
        Passed to ``mlflow.models.Model.log``, such as ``registered_model_name``.

    Returns
    -------
    mlflow.models.model.ModelInfo
    """
    import sys

    from mlflow.models import Model

    return Model.log(artifact_path=None, name=name, flavor=sys.modules[__name__], model=model, **options)


def load_model(model_uri: str) -> Any:
    """Return the model as a learner that can continue to learn and forget.

    Parameters
    ----------
    model_uri : str
        A folder, or a URI such as ``runs:/...`` or ``models:/...``.

    Returns
    -------
    Learner or TableModel
    """
    from mlflow.artifacts import download_artifacts

    return load(Path(download_artifacts(artifact_uri=model_uri)) / _FILE)


class _Predictor:
    """Adapter to the ``pyfunc`` interface of MLflow."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def predict(self, model_input: Any, params: Any = None) -> Any:  # noqa: ARG002  MLflow's signature
        return self.model.predict(model_input)


def _load_pyfunc(path: str) -> _Predictor:
    return _Predictor(load(path))
