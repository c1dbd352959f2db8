"""The Django app of proving. If there is a broker, a stored batch wakes a worker."""

from django.apps import AppConfig
from django.conf import settings


class ProvingConfig(AppConfig):
    name = "proving"

    def ready(self) -> None:
        if settings.BROKER_URL:
            # This module imports Celery, which is needed only here.
            from proving import broker_wakeup  # noqa: PLC0415
            from queries.models import stored  # noqa: PLC0415

            stored.connect(broker_wakeup.wake_workers)
