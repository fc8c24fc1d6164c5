"""DCIL-IncLPSVM thesis: class weights that follow the class counts of a stream."""

from papers.dcil.cost import training_times
from papers.dcil.equality import table_5_1
from papers.dcil.membership import figure_5_1, figure_5_2
from papers.dcil.multiple import multiple_step
from papers.dcil.planes import figures_2
from papers.dcil.recognition import figures_5_3_to_5_6
from papers.dcil.settings import table_5_3_settings
from papers.dcil.static import table_5_3
from papers.dcil.weights import other_weights

__all__ = [
    "figure_5_1",
    "figure_5_2",
    "figures_2",
    "figures_5_3_to_5_6",
    "multiple_step",
    "other_weights",
    "table_5_1",
    "table_5_3",
    "table_5_3_settings",
    "training_times",
]
