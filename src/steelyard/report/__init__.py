"""The report of a run: one HTML file that needs nothing else."""

from steelyard.report.page import render_report, write_report

__all__ = ["render_report", "write_report"]
