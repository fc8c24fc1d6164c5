"""Exact federated learning: sites keep their rows and publish statistics, which a hub merges.

A :class:`Site` learns and forgets its own rows and publishes a :class:`SiteUpdate`: its current statistics
with a version. A :class:`Hub` keeps the latest update of every site. Its model equals a model fitted on the
rows of all sites together. A :class:`ReleasePolicy` decides what a site may publish. Updates are transported
by ``exchange`` in memory, through a folder or through a service. ``masks`` implements secure aggregation, and
``rounds`` runs it through a folder. ``privacy`` adds noise for differential privacy.
"""

from steelyard._deprecation import former_names
from steelyard.federated.exchange import Exchange, Folder, Memory, Service, collect
from steelyard.federated.hub import Hub
from steelyard.federated.masks import MaskedSum, Masker, RoundKeys
from steelyard.federated.privacy import FeatureBounds, PrivacyAccountant, PrivateSite, repaired
from steelyard.federated.rounds import Round, RoundConfig
from steelyard.federated.site import ReleasePolicy, Site
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

__getattr__ = former_names(
    __name__,
    Account="PrivacyAccountant",
    Agreement="RoundKeys",
    Bulletin="SiteUpdate",
    Terms="RoundConfig",
    Units="FeatureBounds",
)
