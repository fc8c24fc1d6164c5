"""HTML reports, each in one self-contained file.

``text`` describes a run in sentences, ``svg`` and ``charts`` draw the charts, and ``page`` renders the
templates. ``compare`` renders two runs side by side, and ``cube`` renders the slices of a cube.
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
