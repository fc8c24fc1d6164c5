"""Kernelized online imbalanced learning: tables 3.2, 3.3 and 4.1 and figures 3.1 to 3.3 of the thesis."""

from papers.koil.epochs import epochs
from papers.koil.evidence import choices, readings
from papers.koil.figures import figure_3_1, figure_3_2, figure_3_3
from papers.koil.mixture import figure_1_1, figure_1_2, generated_sets
from papers.koil.options import options
from papers.koil.shuttle import orders, orders_many_kernels
from papers.koil.tables import table_3_2, table_3_3, table_4_1, table_4_1_written
from papers.koil.toolbox import toolbox

__all__ = [
    "choices",
    "epochs",
    "figure_1_1",
    "figure_1_2",
    "figure_3_1",
    "figure_3_2",
    "figure_3_3",
    "generated_sets",
    "options",
    "orders",
    "orders_many_kernels",
    "readings",
    "table_3_2",
    "table_3_3",
    "table_4_1",
    "table_4_1_written",
    "toolbox",
]
