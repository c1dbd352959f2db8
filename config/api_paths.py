"""The paths of an API, some of which have a variable part."""

import re
from collections.abc import Iterator

_PART = re.compile(r"<\w+>", re.ASCII)


class ApiPaths:
    """A set of paths, for `path in paths`. A part `<name>` matches any text without a slash."""

    def __init__(self, *patterns: str) -> None:
        self._patterns = patterns
        # Most requests have a path without a variable part, which a set finds fastest.
        self._plain = frozenset(pattern for pattern in patterns if not _PART.search(pattern))
        with_parts = (pattern for pattern in patterns if pattern not in self._plain)
        self._variable = re.compile("|".join(map(_as_regex, with_parts)) or r"(?!)")
        self.regex = f"^({'|'.join(map(_as_regex, patterns))})$"

    def __contains__(self, path: str) -> bool:
        return path in self._plain or bool(self._variable.fullmatch(path))

    def __iter__(self) -> Iterator[str]:
        return iter(self._patterns)


def _as_regex(pattern: str) -> str:
    return "[^/]+".join(map(re.escape, _PART.split(pattern)))
