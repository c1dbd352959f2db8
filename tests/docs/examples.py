"""Fenced blocks of the README and the documentation."""

import re
import textwrap
from dataclasses import dataclass
from functools import cache

from devnet.devchain import PROJECT

# Languages of blocks that a reader runs, compiles or saves. A block in another language needs a marker with the reason
# why it isn't run.
LANGUAGES = {"sh", "python", "typescript", "solidity", "json", "toml"}
# Sphinx directives, which are not examples.
DIRECTIVES = {"{toctree}"}

_BLOCK = re.compile(
    r"^(?: *<!-- example: (?P<marker>.*) -->\n)?"
    r" *(?P<fence>```+|~~~+)(?P<language>.*)\n"
    r"(?P<code>(?:.*\n)*?)"
    r" *(?P=fence) *$",
    re.MULTILINE,
)
_MARKER = re.compile(r"(skipped|serves|exits [1-9][0-9]*), because \S.*")


@dataclass(frozen=True)
class Block:
    """A fenced block. `marker` is the comment above it (skipped, serves, exits 1), or empty."""

    page: str
    line: int  # line number of the fence, from 1
    language: str
    code: str
    marker: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def is_skipped(self) -> bool:
        return self.marker == "skipped"

    @property
    def exit_status(self) -> int:
        return int(self.marker.removeprefix("exits ")) if self.marker.startswith("exits ") else 0


class BadExample(ValueError):
    """A block that no test can run or check. The message names the block and the reason."""


@cache
def pages() -> list[str]:
    """Return the paths of the pages for users and developers, relative to the project."""
    root_pages = [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", PROJECT / "SECURITY.md"]
    return [path.relative_to(PROJECT).as_posix() for path in [*root_pages, *sorted((PROJECT / "docs").rglob("*.md"))]]


def blocks_of(page: str, text: str | None = None) -> list[Block]:
    """Return a page's blocks in order. Raise `BadExample` for a block that is neither runnable nor marked."""
    text = (PROJECT / page).read_text() if text is None else text
    if stray := re.search(r"```|~~~|^ *<!--", _BLOCK.sub("", text), re.MULTILINE):
        raise BadExample(f"{page}: this {stray[0].strip()} belongs to no block")
    blocks = [_block(page, text, match) for match in _BLOCK.finditer(text)]
    return [block for block in blocks if block.language not in DIRECTIVES]


def _block(page: str, text: str, match: re.Match[str]) -> Block:
    line = text.count("\n", 0, match.start("fence")) + 1
    marker = _MARKER.fullmatch(match["marker"]) if match["marker"] is not None else None
    if match["marker"] is not None and marker is None:
        raise BadExample(f"{page}:{line}: a marker says skipped, serves or exits N, and because of what")
    block = Block(page, line, match["language"].strip(), textwrap.dedent(match["code"]), marker[1] if marker else "")
    if block.language not in LANGUAGES | DIRECTIVES and not block.is_skipped:
        raise BadExample(f"{block}: no test can run {block.language or 'this'}, and no marker says so")
    return block
