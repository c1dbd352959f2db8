"""What is set up when Django starts."""

from typing import Any

from django.apps import AppConfig
from django.conf import settings

from queries.signals import stored


class ProvingConfig(AppConfig):
    name = "proving"

    def ready(self) -> None:
        stored.connect(_ring)


def _ring(batch: Any, **_: object) -> None:
    from proving.worker.notifier import notifier  # noqa: PLC0415 (it has models, which are not there any earlier)
    from proving.worker.routes import Route  # noqa: PLC0415 (same)

    if settings.BROKER_URL:
        notifier.notify(Route("batch", (batch.destination_chain_id,)))
