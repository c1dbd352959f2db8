"""Exit codes of `bqs`, for scripts. docs/using/command-line.md has the same table."""

from enum import IntEnum

from batch_query_client import errors


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


# If several entries match an error, the first applies.
_CODES: tuple[tuple[tuple[type[errors.BatchQueryError], ...], ExitCode], ...] = (
    ((errors.InvalidRequest,), ExitCode.USAGE),
    ((errors.Unauthorized,), ExitCode.NOT_ALLOWED),
    ((errors.NotFound, errors.NotProven), ExitCode.NOT_FOUND),
    ((errors.BatchRejected, errors.ServiceRefused, errors.TransactionFailed), ExitCode.REJECTED),
    ((errors.NotDoneInTime,), ExitCode.NOT_DONE),
    ((errors.Unavailable, errors.NodeRefused), ExitCode.UNAVAILABLE),
)


def exit_code(error: errors.BatchQueryError) -> ExitCode:
    """Return the exit code of an error. An error without an entry reports something false: NOT_TRUE."""
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), ExitCode.NOT_TRUE)
