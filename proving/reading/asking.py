"""Clients for whom this process asks nodes while they wait: few at a time, and each for few seconds."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from chains.nodes.node_errors import ChainError
from config.error_answers import Refused
from proving.connections import OutOfTime
from queries.columns import RejectionCode
from queries.submission import BUSY_RETRY_SECONDS
from queries.waits import WaitReason

# Maximum seconds to ask nodes for one client, and seconds after which the client should try again.
_MOST_SECONDS = 10
_RETRY_SECONDS = 5
# Maximum number of clients at the same time. The process's other threads (`WEB_THREADS`) stay free for requests without
# nodes.
_MOST_AT_A_TIME = 3
_places = threading.BoundedSemaphore(_MOST_AT_A_TIME)


class ChainUnavailable(Refused):
    """The chains' nodes don't tell now all that the answer needs."""

    def __init__(self, sentence: str) -> None:
        super().__init__("chain_unavailable", sentence, retry_after=_RETRY_SECONDS)


class ProofUnavailable(Refused):
    """No node proves an account at its block, and waiting doesn't help."""

    def __init__(self, reason: WaitReason) -> None:
        super().__init__(RejectionCode.PROOF_UNAVAILABLE.value, str(reason))


@contextmanager
def asking_nodes() -> Iterator[float]:
    """Let one client of few ask nodes. Return until when, by `time.monotonic`. Raises `Refused`: busy.

    If the chains take longer, it is a `ChainUnavailable`.
    """
    if not _places.acquire(blocking=False):
        raise Refused(
            "busy",
            "The service is busy with other requests. Nothing was stored; ask again in a moment.",
            retry_after=BUSY_RETRY_SECONDS,
        )
    try:
        yield time.monotonic() + _MOST_SECONDS
    except OutOfTime:
        raise ChainUnavailable(
            f"The chains did not answer within {_MOST_SECONDS} s all that the answer takes. Nothing was stored. Ask "
            f"for "
            "it in parts, or later.",
        ) from None
    except ChainError as error:
        raise ChainUnavailable(f"{error} Nothing was stored; send it again in a moment.") from None
    finally:
        _places.release()
