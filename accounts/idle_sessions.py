"""Sessions in the database that end some time after their last request, and `SESSION_COOKIE_AGE` after the sign-in."""

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.sessions.backends import db
from django.contrib.sessions.base_session import AbstractBaseSession
from django.utils import timezone

# A session is prolonged once in each of these parts of its idle time, so few requests write.
_PARTS = 24


class SessionStore(db.SessionStore):
    """The store of `settings.SESSION_ENGINE`. The row's `expire_date` is when the session ends if nothing comes."""

    def create_model_instance(self, data: dict[str, Any]) -> AbstractBaseSession:
        row = super().create_model_instance(data)
        row.expire_date = min(row.expire_date, timezone.now() + _idle())
        return row

    def _get_session_from_db(self) -> AbstractBaseSession | None:
        """Return the row, or None if there is none. If the session is in use, its end is moved."""
        row: AbstractBaseSession | None = super()._get_session_from_db()  # type: ignore[misc]  # the stubs lack it
        latest = timezone.now() + _idle()
        if row and latest - row.expire_date > _idle() / _PARTS:
            # Where a session has no end of its own, its row's end stays.
            end = self.decode(row.session_data).get("_session_expiry")
            until = min(latest, self.get_expiry_date(expiry=end)) if end else row.expire_date
            # Whoever signs out meanwhile stays so: no row is made.
            self.model.objects.filter(pk=row.pk, expire_date__lt=until).update(expire_date=until)
        return row


def _idle() -> timedelta:
    return timedelta(hours=settings.SESSION_IDLE_HOURS)
