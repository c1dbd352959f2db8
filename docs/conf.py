"""How Sphinx makes the documentation site: `make docs`."""  # noqa: INP001 (Sphinx reads it as a file)

import re
from pathlib import Path
from typing import Any

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
# The image that pages as text link to.
html_extra_path = ["explorer.png"]

# Comments are for the tests of examples.
_COMMENT = re.compile(r"^ *<!-- .* -->\n", re.MULTILINE)
_SENTENCE_END = re.compile(r"(?<=\.)\s")


# Extensions that do this need more packages, and convert what is Markdown already.
def setup(app: Any) -> None:
    app.connect("build-finished", _write_texts)


def _write_texts(app: Any, error: Exception | None) -> None:
    """Write each page's Markdown beside its HTML, and `llms.txt` (llmstxt.org), which lists the pages by section."""
    if error is not None:
        return
    for page in app.env.found_docs:
        text = Path(app.env.doc2path(page)).read_text()
        (Path(app.outdir) / f"{page}.md").write_text(_COMMENT.sub("", text))

    root = app.env.get_doctree(root_doc)
    lines = [f"# {project}", "", f"> {_paragraphs(root)[0]}"]
    for section in root.findall(lambda node: node.tagname == "toctree"):
        lines += ["", f"## {section['caption']}", ""]
        for _, page in section["entries"]:
            sentence = _SENTENCE_END.split(_paragraphs(app.env.get_doctree(page))[0])[0].removesuffix(":")
            lines.append(f"- [{app.env.titles[page].astext()}]({page}.md): {sentence}")
    (Path(app.outdir) / "llms.txt").write_text("\n".join([*lines, ""]))


def _paragraphs(page: Any) -> list[str]:
    return [" ".join(node.astext().split()) for node in page.findall(lambda node: node.tagname == "paragraph")]
