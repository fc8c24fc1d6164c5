"""The service over HTTP: routes, content types, keys and limits; no policy about models."""

from steelyard.service.http.app import Limits, make_app

__all__ = ["Limits", "make_app"]
