"""Several places that keep their rows: one message a place trains the pooled model, exactly.

A :class:`Site` learns and forgets its own rows and publishes a :class:`SiteUpdate`: its current statistics
under a version. A :class:`Hub` keeps the latest bulletin of every site; the model is the one that all rows
together would give. ``release`` decides what may leave a site; ``exchange`` carries bulletins in memory or
through a folder, ``remote`` to a service; ``masks`` sums without showing a single site and ``rounds``
does so through a folder; ``privacy`` adds noise and keeps its account.
"""

from steelyard._deprecation import renamed_class
from steelyard.federated.exchange import Exchange, Folder, Memory, collect
from steelyard.federated.hub import Hub
from steelyard.federated.masks import MaskedSum, Masker, RoundKeys
from steelyard.federated.privacy import FeatureBounds, PrivacyAccountant, PrivateSite, repaired
from steelyard.federated.release import ReleasePolicy
from steelyard.federated.remote import Service
from steelyard.federated.rounds import Round, RoundConfig
from steelyard.federated.site import Site
from steelyard.federated.site_update import SiteUpdate

__all__ = [
    "Exchange",
    "FeatureBounds",
    "Folder",
    "Hub",
    "MaskedSum",
    "Masker",
    "Memory",
    "PrivacyAccountant",
    "PrivateSite",
    "ReleasePolicy",
    "Round",
    "RoundConfig",
    "RoundKeys",
    "Service",
    "Site",
    "SiteUpdate",
    "collect",
    "repaired",
]

_FORMER_NAMES = {
    "Account": "PrivacyAccountant",
    "Agreement": "RoundKeys",
    "Bulletin": "SiteUpdate",
    "Terms": "RoundConfig",
    "Units": "FeatureBounds",
}


def __getattr__(name: str) -> type:
    return renamed_class(__name__, _FORMER_NAMES, name)
