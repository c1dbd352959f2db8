"""What `bqs` ends with, so that scripts can tell. docs/using/command-line.md has the same table."""

from enum import IntEnum

from batch_query_client import (
    BatchQueryError,
    BatchRejected,
    Conflict,
    InvalidBundle,
    InvalidRequest,
    InvalidWebhook,
    NodeRefused,
    NotDoneInTime,
    NotFound,
    NotProven,
    ServiceRefused,
    TransactionFailed,
    Unauthorized,
    Unavailable,
    UnsafeSignIn,
    UnsafeTransaction,
    WrongChain,
    WrongFact,
)


class ExitCode(IntEnum):
    OK = 0
    REJECTED = 1
    USAGE = 2
    NOT_DONE = 3
    UNAVAILABLE = 4
    NOT_ALLOWED = 5
    NOT_FOUND = 6
    NOT_TRUE = 7
    DEFECT = 70
    INTERRUPTED = 130


# The first that fits.
_CODES: tuple[tuple[tuple[type[BatchQueryError], ...], ExitCode], ...] = (
    ((InvalidRequest,), ExitCode.USAGE),
    ((Unauthorized,), ExitCode.NOT_ALLOWED),
    ((NotFound, NotProven), ExitCode.NOT_FOUND),
    ((BatchRejected, Conflict, ServiceRefused, TransactionFailed), ExitCode.REJECTED),
    ((NotDoneInTime,), ExitCode.NOT_DONE),
    ((Unavailable, NodeRefused), ExitCode.UNAVAILABLE),
    ((InvalidBundle, InvalidWebhook, WrongFact, WrongChain), ExitCode.NOT_TRUE),
    ((UnsafeTransaction, UnsafeSignIn), ExitCode.NOT_TRUE),
)


def exit_code(error: BatchQueryError) -> ExitCode:
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), ExitCode.DEFECT)
