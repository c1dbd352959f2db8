"""Sessions in the database. A session ends after an idle time, and no later than `SESSION_COOKIE_AGE` after sign-in."""

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.sessions.backends import db
from django.contrib.sessions.base_session import AbstractBaseSession
from django.utils import timezone

# The idle time is divided into this number of parts. A session is extended once per part, so few requests write.
_PARTS = 24


class SessionStore(db.SessionStore):
    """The store of `settings.SESSION_ENGINE`. `expire_date` is when the session ends if no further request comes."""

    def create_model_instance(self, data: dict[str, Any]) -> AbstractBaseSession:
        row = super().create_model_instance(data)
        row.expire_date = min(row.expire_date, timezone.now() + _idle())
        return row

    def _get_session_from_db(self) -> AbstractBaseSession | None:
        """Return the row and postpone its end, because the session is in use. Return None if there is no row."""
        row: AbstractBaseSession | None = super()._get_session_from_db()  # type: ignore[misc]  # the stubs lack it
        latest = timezone.now() + _idle()
        if row and latest - row.expire_date > _idle() / _PARTS:
            # A session without a fixed end isn't extended.
            end = self.decode(row.session_data).get("_session_expiry")
            until = min(latest, self.get_expiry_date(expiry=end)) if end else row.expire_date
            # An UPDATE, unlike a save, doesn't create the row again if the user has signed out meanwhile.
            self.model.objects.filter(pk=row.pk, expire_date__lt=until).update(expire_date=until)
        return row


def _idle() -> timedelta:
    return timedelta(hours=settings.SESSION_IDLE_HOURS)
