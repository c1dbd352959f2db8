"""The log of what operators did to others: who, when, what, to whom and why. Rows are only ever added."""

from accounts.models import AdminActionKind, OperatorDeed

# The name for the user of a command on the machine: Django doesn't know who it is.
COMMAND = "manage.py"
_SUBJECT_CHARS = 200


def record(operator: str, kind: AdminActionKind, subject: str, *, reason: str = "", detail: str = "") -> None:
    """Call it in the database transaction of the action: none is done without its row.

    `operator` is an address of `settings.OPERATOR_ADDRESSES`, or `COMMAND`.
    """
    if len(subject) > _SUBJECT_CHARS:
        subject, detail = f"{subject[: _SUBJECT_CHARS - 1]}…", f"{subject} {detail}".strip()
    OperatorDeed.objects.create(operator=operator, kind=kind, subject=subject, reason=reason, detail=detail)
