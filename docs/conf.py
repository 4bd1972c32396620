"""Sphinx: `make docs`."""

from __future__ import annotations

from importlib.metadata import version as version_of

project = "Treadle"
author = "the Treadle authors"
copyright = "2026, the Treadle authors"
release = version = version_of("treadle")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"Treadle {release}"
html_copy_source = False

myst_heading_anchors = 3

# Docstrings write code in single backticks.
default_role = "literal"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
napoleon_numpy_docstring = False
