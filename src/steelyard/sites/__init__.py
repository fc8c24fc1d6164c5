"""Several places that keep their rows: one message a place trains the pooled model, exactly.

A :class:`Site` learns and forgets its own rows and publishes a :class:`Bulletin`: its current statistics
under a version. A :class:`Hub` keeps the latest bulletin of every site; the model is the one that all rows
together would give. ``release`` decides what may leave a site; ``exchange`` carries bulletins in memory or
through a folder, ``remote`` to a service; ``masks`` sums without showing a single site and ``rounds``
does so through a folder; ``privacy`` adds noise and keeps its account.
"""

from steelyard.sites.bulletin import Bulletin
from steelyard.sites.exchange import Exchange, Folder, Memory, collect
from steelyard.sites.hub import Hub
from steelyard.sites.masks import Agreement, MaskedSum, Masker
from steelyard.sites.privacy import Account, PrivateSite, Units, repaired
from steelyard.sites.release import ReleasePolicy
from steelyard.sites.remote import Service
from steelyard.sites.rounds import Round, Terms
from steelyard.sites.site import Site

__all__ = [
    "Account",
    "Agreement",
    "Bulletin",
    "Exchange",
    "Folder",
    "Hub",
    "MaskedSum",
    "Masker",
    "Memory",
    "PrivateSite",
    "ReleasePolicy",
    "Round",
    "Service",
    "Site",
    "Terms",
    "Units",
    "collect",
    "repaired",
]
