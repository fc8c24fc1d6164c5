"""Short name of the MLflow flavor :mod:`steelyard.compat.mlflow`."""

from steelyard.compat.mlflow import FLAVOR_NAME, load_model, log_model, save_model

__all__ = ["FLAVOR_NAME", "load_model", "log_model", "save_model"]
