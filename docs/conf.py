"""How Sphinx makes the documentation site: `make docs`."""  # noqa: INP001 (Sphinx reads it as a file)

project = "Batch Query Service"
html_title = project
author = "The authors of Batch Query Service"

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "index"
# Headings are linked to by the names that code hosts give them, so that links work there as well.
myst_heading_anchors = 4

# No page loads anything from another host: the theme has its fonts and scripts in itself.
html_theme = "furo"
html_copy_source = False
html_show_sourcelink = False
