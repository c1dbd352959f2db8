"""The paths of an API. Some have a part that may be anything."""

import re
from collections.abc import Iterator

_PART = re.compile(r"<\w+>", re.ASCII)


class ApiPaths:
    """`path in paths` tells whether a path is one of them. A part `<name>` is any text without a slash."""

    def __init__(self, *patterns: str) -> None:
        self._patterns = patterns
        # Paths without such a part are found at once.
        self._plain = frozenset(pattern for pattern in patterns if not _PART.search(pattern))
        others = (pattern for pattern in patterns if pattern not in self._plain)
        self._others = re.compile("|".join(map(_as_regex, others)) or r"(?!)")
        self.regex = f"^({'|'.join(map(_as_regex, patterns))})$"

    def __contains__(self, path: str) -> bool:
        return path in self._plain or bool(self._others.fullmatch(path))

    def __iter__(self) -> Iterator[str]:
        return iter(self._patterns)


def _as_regex(pattern: str) -> str:
    return "[^/]+".join(map(re.escape, _PART.split(pattern)))
