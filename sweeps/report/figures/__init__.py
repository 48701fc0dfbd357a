"""Figures of reports: descriptions in the terms of Plotly, which Matplotlib draws, too."""

FIGURE_FILES = ("tradeoff.png", "releases.png", "week.png", "information-plane.png")
FRONT_PICTURE = "front.png"
"""Names of the figures that a sweep keeps as files, where its data allow them."""
