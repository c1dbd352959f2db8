"""Reports each error of a database to the subscribers of `failed`, whichever statement it was."""

from types import TracebackType

from django.db import Error as DatabaseError
from django.db.utils import DatabaseErrorWrapper
from django.dispatch import Signal

failed = Signal()


class ToldErrors(DatabaseErrorWrapper):
    """In place of Django's own, which makes its errors of the driver's, also of those of a commit."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        except DatabaseError as told:
            failed.send(type(self), error=told)
            raise
