"""Every table and figure of five papers as an experiment that can be run.

An experiment computes everything afresh; the figures that a paper prints stand beside it as data and are only
ever shown next to ours. ``steelyard papers list`` and ``steelyard papers run`` are the way in from the
command line.
"""

from steelyard.papers.cells import Cells
from steelyard.papers.context import Context
from steelyard.papers.experiment import Experiment, experiment, experiments, find, run
from steelyard.papers.result import Picture, Report, Result, Row, Series
from steelyard.papers.verdict import Verdict, judge

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
