"""Figures of reports: descriptions in the terms of Plotly, which Matplotlib draws, too."""
