# SPDX-License-Identifier: Apache-2.0
"""Sphinx's settings for the site; build_site.py runs Sphinx on the pages that it copied."""

from __future__ import annotations

import os

project = "RMM"
author = ""
copyright = ""  # noqa: A001
release = os.environ.get("RMM_SITE_VERSION", "")
version = release

extensions = ["myst_parser", "sphinx_copybutton"]
myst_heading_anchors = 4
root_doc = "index"
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"RMM {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}
templates_path: list[str] = []

pygments_style = "friendly"
pygments_dark_style = "monokai"
highlight_language = "none"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

toc_object_entries_show_parents = "hide"
cpp_index_common_prefix = ["rmm::mr::", "rmm::", "cudasim::"]
cpp_maximum_signature_line_length = 100
python_maximum_signature_line_length = 100
add_module_names = False
# Sphinx takes two specializations of a template for duplicates. Members of different classes share names, so a word in
# a text cannot be linked to one of them.
suppress_warnings = ["duplicate_declaration.cpp", "ref.python"]


def note_plain_copy(app, pagename, templatename, context, doctree):  # noqa: ANN001, ANN201, ARG001
    """Names the Markdown copy of the page in the page's head."""
    if doctree is not None:
        name = pagename.rpartition("/")[2]
        context["metatags"] = context.get("metatags", "") + f'<link rel="alternate" type="text/markdown" href="{name}.md" />'


def setup(app):  # noqa: ANN001, ANN201
    app.connect("html-page-context", note_plain_copy)
