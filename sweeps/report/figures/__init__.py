"""Figures of reports: data of each figure as a chart, and drawing of charts."""
