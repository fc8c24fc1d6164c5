"""HTTP interface of the service: routes, content types, keys and limits."""

from steelyard.service.http.app import Limits, make_app

__all__ = ["Limits", "make_app"]
