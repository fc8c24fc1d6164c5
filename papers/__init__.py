"""Every table and figure of five papers as an experiment that can be run.

An experiment computes everything afresh; the figures that a paper prints stand beside it as data and are only
ever shown next to ours. ``python -m papers list`` and ``python -m papers run`` are the way in from the
command line.
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
