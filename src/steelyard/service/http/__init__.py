"""HTTP interface of the service: routes, content types, keys and limits."""

from steelyard.service.http.app import make_app
from steelyard.service.rows import Limits

__all__ = ["Limits", "make_app"]
