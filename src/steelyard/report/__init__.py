"""The report: one HTML file that needs nothing else.

``words`` says what was seen, ``svg`` and ``charts`` draw it, ``page`` gathers both for the templates, and
``compare`` does so for two runs.
"""

from steelyard.report.compare import render_comparison, write_comparison
from steelyard.report.page import render_report, write_report

__all__ = ["render_comparison", "render_report", "write_comparison", "write_report"]
