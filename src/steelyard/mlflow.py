"""The flavour for MLflow where its users look for it; it lives in :mod:`steelyard.compat.mlflow`."""

from steelyard.compat.mlflow import FLAVOR_NAME, load_model, log_model, save_model

__all__ = ["FLAVOR_NAME", "load_model", "log_model", "save_model"]
