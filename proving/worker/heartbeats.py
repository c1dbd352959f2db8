"""What is known of the workers that run. Pages and probes ask it, in processes in which none does."""

from datetime import datetime, timedelta

from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from proving.models import WorkerHeartbeat

# A worker that has been silent for so long is taken for dead.
SILENCE = timedelta(seconds=20)


def last_beat() -> datetime | None:
    """Return when a worker was last heard of."""
    beats = WorkerHeartbeat.objects.filter(beat_at__lt=Now() + SILENCE)
    return beats.order_by("-beat_at").values_list("beat_at", flat=True).first()


def running() -> QuerySet[WorkerHeartbeat]:
    """Return the workers that run. A beat from the future is that of a clock that was ahead, and tells nothing."""
    return WorkerHeartbeat.objects.filter(_runs())


def _runs() -> Q:
    return Q(beat_at__gt=Now() - SILENCE, beat_at__lt=Now() + SILENCE)


def is_running() -> bool:
    """Return whether a worker runs: each page asks."""
    return running().exists()
