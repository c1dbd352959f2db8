"""What the client asks of the world, as values, and what comes back. Here is no input or output.

All logic is written as generators, `Steps`. They yield these values and are sent, or thrown, what came of them. So the
same lines serve callers that block and callers that don't (`drivers`), and tests need neither a network nor a clock.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

Result = TypeVar("Result")

MEGABYTE = 1024 * 1024


class Unreachable(Exception):
    """A request had no whole answer. The message says what the other side did, to be put behind its name."""

    def __init__(self, what: str, *, was_sent: bool) -> None:
        super().__init__(what)
        self.was_sent = was_sent
        """True if the other side may have had the request."""


@dataclass(frozen=True)
class Request:
    """An HTTP request. What is long or secret is not in its `repr`."""

    method: Literal["GET", "POST"]
    url: str = field(repr=False)
    headers: Sequence[tuple[str, str]] = field(default=(), repr=False)
    body: bytes = field(default=b"", repr=False)
    max_bytes: int = 16 * MEGABYTE
    """The limit of the answer's content; a longer one is `Unreachable`."""
    seconds: float = 30
    """For everything: the name, the connection, the headers and the content."""


@dataclass(frozen=True)
class Answer:
    """An HTTP response of any status."""

    status: int
    headers: Sequence[tuple[str, str]]
    """Names in lower case."""
    content: bytes

    def header(self, name: str) -> str:
        """Return the first header of this name (in lower case), or an empty string."""
        return next((value for key, value in self.headers if key == name), "")


class Provider(Protocol):
    """A connection to a node that the caller has made, such as `Web3(...).provider`; it may be asynchronous."""

    def make_request(self, method: Any, params: Any) -> Any: ...


@dataclass(frozen=True)
class Call:
    """A call of a node by the caller's own connection; comes back as the reply's JSON object."""

    provider: Provider = field(repr=False)
    method: str
    parameters: Sequence[Any] = field(repr=False)


@dataclass(frozen=True)
class Pause:
    seconds: float


@dataclass(frozen=True)
class Now:
    """Comes back as seconds on a clock that only goes forward."""


@dataclass(frozen=True)
class Tell:
    """A caller's function to be called; where callers don't block it may be a coroutine function."""

    function: Callable[[Any], object]
    value: Any = field(repr=False)


Effect = Request | Call | Pause | Now | Tell

Steps = Generator[Effect, Any, Result]
