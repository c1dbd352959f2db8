"""The Django app of proving. It checks the blocks of requests. If there is a broker, a stored batch wakes a worker."""

from django.apps import AppConfig
from django.conf import settings

from queries.columns import EarlyCheck, early_checks


class ProvingConfig(AppConfig):
    name = "proving"

    def ready(self) -> None:
        from queries.models import stored  # noqa: PLC0415

        early_checks.append(_early_check)
        if settings.BROKER_URL:
            # This module imports Celery, which is needed only here.
            from proving.working import broker_wakeup  # noqa: PLC0415

            stored.connect(broker_wakeup.wake_workers)


def _early_check() -> EarlyCheck:
    # Commands that read no request need none of these modules.
    from proving.admission import admission_checks  # noqa: PLC0415

    return admission_checks.early_check()
