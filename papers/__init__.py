"""Experiments that recompute every table and figure of five papers.

The published numbers are stored as data and are used only for comparison. ``python -m papers list`` and
``python -m papers run`` are the command line interface.
"""

from papers.cells import Cells
from papers.context import Context
from papers.experiment import Experiment, experiment, experiments, find, run
from papers.result import Picture, Report, Result, Row, Series
from papers.verdict import Verdict, judge

__all__ = [
    "Cells",
    "Context",
    "Experiment",
    "Picture",
    "Report",
    "Result",
    "Row",
    "Series",
    "Verdict",
    "experiment",
    "experiments",
    "find",
    "judge",
    "run",
]
