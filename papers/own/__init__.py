"""Experiments with the best learners of this library on the datasets of the papers."""

from papers.own.dcil import on_dcil
from papers.own.distributed import on_distributed
from papers.own.kba import on_kba
from papers.own.koil import koil_large, koil_medium, koil_small
from papers.own.mhe import on_mhe

__all__ = ["koil_large", "koil_medium", "koil_small", "on_dcil", "on_distributed", "on_kba", "on_mhe"]
