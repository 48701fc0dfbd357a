"""Sphinx configuration; `make docs` builds the pages without a network, warnings as errors."""

from __future__ import annotations

import sys
from pathlib import Path

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent))

import study_reference

project = "privnets-sweeps"
copyright = "the privnets-sweeps authors"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
nb_execution_timeout = 600  # seconds for a cell; the notebooks run small sweeps
nb_execution_raise_on_error = True
exclude_patterns = ["_build", "_generated"]
html_theme = "pydata_sphinx_theme"
html_title = "privnets-sweeps"
html_show_sourcelink = False
html_sidebars = {"**": []}  # the pages form a flat list, which the header and index show
html_theme_options = {"navigation_with_keys": False, "show_prev_next": True}
autodoc_typehints = "none"
autodoc_member_order = "bysource"
# Types in signatures belong to other projects, whose pages are not at hand.
nitpicky = False


def setup(app: Sphinx) -> None:
    """Writes the generated tables before Sphinx reads the pages."""
    app.connect("builder-inited", lambda app: study_reference.write(Path(app.srcdir)))
