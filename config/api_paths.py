"""The paths of an API, some of which have a variable part."""

import re
from collections.abc import Iterator

_PART = re.compile(r"<\w+>", re.ASCII)


class ApiPaths:
    """A set of paths, for `path in paths`. A part `<name>` matches any text without a slash."""

    def __init__(self, *patterns: str) -> None:
        self._patterns = patterns
        self.regex = f"^({'|'.join('[^/]+'.join(map(re.escape, _PART.split(each))) for each in patterns)})$"
        self._compiled = re.compile(self.regex)

    def __contains__(self, path: str) -> bool:
        return bool(self._compiled.fullmatch(path))

    def __iter__(self) -> Iterator[str]:
        return iter(self._patterns)
