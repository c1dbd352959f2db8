"""The library's errors. Each message is a sentence for people, without keys and paths of URLs."""

from collections.abc import Sequence
from dataclasses import dataclass


class BatchQueryError(Exception):
    """Any error of this library. Its `str()` is a sentence."""


# --- The service ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """A fault of a request."""

    path: str
    """A JSON pointer (RFC 6901) into the request's body."""
    message: str
    code: str


class ServiceRefused(BatchQueryError):
    """The service answered with an error. Sending the same request again won't help."""

    def __init__(self, sentence: str, *, status: int, code: str, faults: Sequence[Fault] = ()) -> None:
        super().__init__(sentence)
        self.status = status
        """The HTTP status."""
        self.code = code
        """A stable word. Empty if the answer had none."""
        self.faults = tuple(faults)
        """All faults in the body of a submission or an estimate."""


class InvalidRequest(ServiceRefused):
    """400, 413, 415, 422: the request is invalid. Nothing was stored."""


class Unauthorized(ServiceRefused):
    """401, 403: the API key is missing, unknown, expired or revoked, may only read, or its user lacks the
    permission.
    """


class NotFound(ServiceRefused):
    """404, 410: the object doesn't exist, was removed, or is another user's."""


class Conflict(ServiceRefused):
    """409: the state of the object doesn't allow the request. For example, a finished batch can't be cancelled."""


class Unavailable(BatchQueryError):
    """The service or a node can't be reached or can't answer now. Retries have failed."""

    def __init__(self, sentence: str, *, code: str = "", retry_after: float | None = None) -> None:
        super().__init__(sentence)
        self.code = code
        """A stable word, as in `ServiceRefused`. Empty if there was no answer."""
        self.retry_after = retry_after
        """Seconds after which the service advises to try again. None: no advice."""


class UnexpectedAnswer(Unavailable):
    """The answer violates the specification of the API or of JSON-RPC."""


# --- A batch ----------------------------------------------------------------------------------------------------------


class BatchRejected(BatchQueryError):
    """The batch will not be proven."""

    def __init__(self, sentence: str, *, internal_id: str, code: str, retryable: bool) -> None:
        super().__init__(sentence)
        self.internal_id = internal_id
        self.code = code
        """A stable word from the specification's table of rejections."""
        self.retryable = retryable
        """True if submitting the same batch again can help."""


class NotDoneInTime(BatchQueryError, TimeoutError):
    """The batch is not done within the caller's time. The service continues with it."""

    def __init__(self, sentence: str, *, internal_id: str, waits: Sequence[str] = ()) -> None:
        super().__init__(sentence)
        self.internal_id = internal_id
        self.waits = tuple(waits)
        """Sentences that say what the batch waits for."""


# --- Chains -----------------------------------------------------------------------------------------------------------


class NodeRefused(BatchQueryError):
    """A node answered a call with an error."""


class WrongChain(BatchQueryError):
    """A node serves another chain than the expected one."""


class NotProven(BatchQueryError):
    """A facts registry doesn't hold the fact."""


class WrongFact(BatchQueryError):
    """A facts registry holds another value than the service reports, or the contract is no facts registry."""


class UnsafeTransaction(BatchQueryError):
    """The service requested a signature for something other than a proof for a facts registry. Nothing was signed."""


class TransactionFailed(BatchQueryError):
    """A transaction reverted, was not mined in time, or was not sent."""


# --- Verification -----------------------------------------------------------------------------------------------------


class InvalidBundle(BatchQueryError, ValueError):
    """A proof bundle doesn't prove its facts, or proves them for another block than the trusted one."""


class InvalidWebhook(BatchQueryError, ValueError):
    """A webhook delivery was not signed by the service, is too old, or was changed."""


class UnsafeSignIn(BatchQueryError):
    """The service requested a signature for something other than a sign-in to itself. Nothing was signed."""
