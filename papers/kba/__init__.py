"""Kernel boundary alignment (Wu and Chang) on vectors and sequences."""

from papers.kba.abalone import abalone
from papers.kba.images import table_4
from papers.kba.letter import letter
from papers.kba.trajectories import figure_2
from papers.kba.uci import tables_2_and_3

__all__ = ["abalone", "figure_2", "letter", "table_4", "tables_2_and_3"]
