"""Several places that keep their rows: one message a place trains the pooled model, exactly.

A :class:`Site` learns and forgets its own rows and publishes a :class:`Bulletin`: its current statistics
under a version. A :class:`Hub` keeps the latest bulletin of every site; the model is the one that all rows
together would give. ``release`` decides what may leave a site, ``exchange`` carries bulletins in a folder.
"""

from steelyard.sites.bulletin import Bulletin
from steelyard.sites.exchange import Folder
from steelyard.sites.hub import Hub
from steelyard.sites.release import ReleasePolicy
from steelyard.sites.site import Site

__all__ = ["Bulletin", "Folder", "Hub", "ReleasePolicy", "Site"]
