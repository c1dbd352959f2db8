"""The Django app of proving: with a broker, stored batches wake workers."""

from django.apps import AppConfig
from django.conf import settings


class ProvingConfig(AppConfig):
    name = "proving"

    def ready(self) -> None:
        if settings.BROKER_URL:
            # The module imports Celery, which nothing else needs.
            from proving import broker_wakeup  # noqa: PLC0415
            from queries.models import stored  # noqa: PLC0415

            stored.connect(broker_wakeup.wake_workers)
