"""The report: one HTML file that needs nothing else.

``words`` says what was seen, ``svg`` and ``charts`` draw it, ``page`` gathers both for the templates, and
``compare`` does so for two runs, ``cube`` for the slices of a cube.
"""

from steelyard.report.compare import render_comparison, write_comparison
from steelyard.report.cube import render_slices, write_slices
from steelyard.report.page import render_report, write_report

__all__ = [
    "render_comparison",
    "render_report",
    "render_slices",
    "write_comparison",
    "write_report",
    "write_slices",
]
