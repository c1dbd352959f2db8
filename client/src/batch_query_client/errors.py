"""What can go wrong. Each message is a sentence that can be shown to people; none shows a key or the path of a URL."""

from collections.abc import Sequence
from dataclasses import dataclass


class BatchQueryError(Exception):
    """Any error of this library. `str()` of it is a sentence."""


# --- The service ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with a request."""

    path: str
    """A JSON pointer (RFC 6901) into the request's body."""
    message: str
    code: str


class ServiceRefused(BatchQueryError):
    """The service answered a request with an error, and to send it again as it is won't help."""

    def __init__(self, sentence: str, *, status: int, code: str, faults: Sequence[Fault] = ()) -> None:
        super().__init__(sentence)
        self.status = status
        """The HTTP status."""
        self.code = code
        """A stable word; empty where the answer had none."""
        self.faults = tuple(faults)
        """All that is wrong with the body of a submission or an estimate."""


class InvalidRequest(ServiceRefused):
    """400, 413, 415, 422: something is wrong with the request in itself. Nothing was stored."""


class Unauthorized(ServiceRefused):
    """401, 403: the API key is missing, unknown, expired or revoked, or its user may not do this."""


class NotFound(ServiceRefused):
    """404, 410: there is none, or it is another user's; or it was there and was removed."""


class Conflict(ServiceRefused):
    """409: the state that it is in doesn't allow this, such as to cancel what has finished."""


class Unavailable(BatchQueryError):
    """The service, or a node, can't be reached or can't answer now, and to try again has not helped so far."""

    def __init__(self, sentence: str, *, code: str = "", retry_after: float | None = None) -> None:
        super().__init__(sentence)
        self.code = code
        """A stable word, as in `ServiceRefused`; empty where there was no answer."""
        self.retry_after = retry_after
        """Seconds after which it makes sense to try again, where the service says so."""


class UnexpectedAnswer(Unavailable):
    """An answer is not what the API's or the node's specification says."""


# --- A batch ----------------------------------------------------------------------------------------------------------


class BatchRejected(BatchQueryError):
    """The batch will not be proven."""

    def __init__(self, sentence: str, *, internal_id: str, code: str, retryable: bool) -> None:
        super().__init__(sentence)
        self.internal_id = internal_id
        self.code = code
        """A stable word, see the specification's table of rejections."""
        self.retryable = retryable
        """True if sending the same batch again can help."""


class NotDoneInTime(BatchQueryError, TimeoutError):
    """The batch is still open after the time that the caller gave it. It goes on."""

    def __init__(self, sentence: str, *, internal_id: str, waits: Sequence[str] = ()) -> None:
        super().__init__(sentence)
        self.internal_id = internal_id
        self.waits = tuple(waits)
        """Sentences about what it waits for."""


# --- Chains -----------------------------------------------------------------------------------------------------------


class NodeRefused(BatchQueryError):
    """A node answered a call with an error."""


class WrongChain(BatchQueryError):
    """A node is not one of the chain that it was asked for."""


class NotProven(BatchQueryError):
    """A facts registry doesn't hold the fact."""


class WrongFact(BatchQueryError):
    """A facts registry holds another value than the service says, or the service names a contract that is none."""


class UnsafeTransaction(BatchQueryError):
    """The service asks to sign something else than a proof for a facts registry. It was not signed."""


class TransactionFailed(BatchQueryError):
    """A transaction that was sent has reverted, or was not mined in time."""


# --- What is verified here --------------------------------------------------------------------------------------------


class InvalidBundle(BatchQueryError, ValueError):
    """A proof bundle does not show what it says, or not of the block that the caller trusts."""


class InvalidWebhook(BatchQueryError, ValueError):
    """A delivery was not signed by the service, is too old, or was changed."""


class UnsafeSignIn(BatchQueryError):
    """The service asks to sign something else than a sign-in to itself. It was not signed."""
