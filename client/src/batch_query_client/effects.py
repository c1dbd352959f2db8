"""Effects: values that describe what the client wants from its surroundings, such as requests and pauses.

All logic is written as generators, `Steps`, which yield effects and receive their results or errors. The same code
serves callers that block and callers that don't (`drivers`). Tests need neither a network nor a clock. This module
itself does no input or output.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

Result = TypeVar("Result")

MEGABYTE = 1024 * 1024


class Unreachable(Exception):
    """A request had no complete answer. The message continues a sentence that begins with the server's name."""

    def __init__(self, reason: str, *, was_sent: bool) -> None:
        super().__init__(reason)
        self.was_sent = was_sent
        """True if the other side may have received the request."""


@dataclass(frozen=True)
class Request:
    """An HTTP request. Its `repr` has no long or secret parts."""

    method: Literal["GET", "POST"]
    url: str = field(repr=False)
    headers: Sequence[tuple[str, str]] = field(default=(), repr=False)
    body: bytes = field(default=b"", repr=False)
    max_bytes: int = 16 * MEGABYTE
    """Maximum of the answer's content. A longer answer is `Unreachable`."""
    seconds: float = 30
    """Maximum of the whole exchange: look-up of the name, connection, headers and content."""


@dataclass(frozen=True)
class HttpAnswer:
    """An HTTP response with any status."""

    status: int
    headers: Sequence[tuple[str, str]]
    """Names in lower case."""
    content: bytes
    through: str = ""
    """The proxy that sent the answer, for messages. Empty: none."""

    def header(self, name: str) -> str:
        """Return the first header with this name (in lower case), or an empty string."""
        return next((value for key, value in self.headers if key == name), "")


class Provider(Protocol):
    """A connection to a node that the caller has made, such as `Web3(...).provider`. It may be asynchronous."""

    def make_request(self, method: Any, params: Any) -> Any: ...


@dataclass(frozen=True)
class ProviderCall:
    """A call of a node through the caller's own connection. The result is the reply's JSON object."""

    provider: Provider = field(repr=False)
    method: str
    parameters: Sequence[Any] = field(repr=False)


@dataclass(frozen=True)
class Pause:
    seconds: float


@dataclass(frozen=True)
class Now:
    """A reading of a monotonic clock. The result is in seconds."""


@dataclass(frozen=True)
class Tell:
    """A call of the caller's function. For a caller that doesn't block, it may be a coroutine function."""

    function: Callable[[Any], object]
    value: Any = field(repr=False)


Effect = Request | ProviderCall | Pause | Now | Tell

Steps = Generator[Effect, Any, Result]
