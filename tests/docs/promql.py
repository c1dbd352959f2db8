"""The names of the metrics in an expression of PromQL, and its labels."""

import itertools
import re
from collections.abc import Iterator

_TOKEN = re.compile(
    r"""(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<range>\[[^\]]*\])
    |(?P<number>(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)(?:ms|[smhdwy])?)
    |(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)
    |(?P<other>[=!<>]=|=~|!~|[-+*/%^<>=(){},])
    |(?P<space>\s+)""",
    re.VERBOSE,
)
_OPERATORS = {"and", "or", "unless", "bool", "offset", "inf", "nan"}
_BEFORE_LABELS = {"by", "without", "on", "ignoring", "group_left", "group_right"}


def _tokens(expression: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(expression):
        match = _TOKEN.match(expression, at)
        assert match, f"not PromQL: {expression[at:]!r}"
        assert match.lastgroup
        if match.lastgroup != "space":
            yield match.lastgroup, match[0]
        at = match.end()


def names(expression: str) -> tuple[set[str], set[str]]:
    """Return the names of the metrics, and those of the labels."""
    metrics, labels = set(), set()
    tokens = [*_tokens(expression), ("end", "")]
    # Whether the last parenthesis holds labels.
    in_labels, expects_labels = False, False
    for (kind, text), (_, following) in itertools.pairwise(tokens):
        if text in {"(", "{"}:
            in_labels, expects_labels = text == "{" or expects_labels, False
        elif text in {")", "}"}:
            in_labels = False
        elif kind == "name" and in_labels:
            labels.add(text)
        elif kind == "name" and text.lower() in _BEFORE_LABELS:
            expects_labels = True
        elif kind == "name" and following not in {"(", "by", "without"} and text.lower() not in _OPERATORS:
            metrics.add(text)
    return metrics, labels
