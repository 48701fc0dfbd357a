"""The report of a sweep: one HTML page that opens without a network."""

from sweeps.report.page import write_report
from sweeps.report.sources import ReportInput, ReportSource

__all__ = ["ReportInput", "ReportSource", "write_report"]
