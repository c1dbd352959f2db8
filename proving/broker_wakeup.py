"""The broker that `BROKER_URL` names, and its only message: something was submitted, so a worker should poll at once.

Rows are the queue. A message that is lost, late, doubled or forged changes nothing but when a worker polls.
"""

import logging
import threading

from celery import Celery
from django.conf import settings

logger = logging.getLogger(__name__)

TASK = "tick"
"""The task that `proving.celery_app` does. Workers of other versions know it by this name."""

# Workers poll by themselves long before this. The clocks of two machines should differ by less.
_EXPIRES_SECONDS = 60
# Timeouts for Redis, in seconds. The client of RabbitMQ notices by itself that the broker is gone.
_REDIS = {"socket_connect_timeout": 3, "socket_timeout": 5, "socket_keepalive": True}

# There are no fixups, because Celery's set-up of Django is for processes that it forks.
app = Celery("proving", broker=settings.BROKER_URL, fixups=[], set_as_current=False)
app.conf.update(
    task_default_queue="ticks",
    # A queue of an older version in `-Q` is refused.
    task_create_missing_queues=False,
    # `Worker` has threads of its own for the work: a message only wakes it.
    worker_pool="threads",
    worker_concurrency=1,
    task_ignore_result=True,
    task_default_delivery_mode="transient",
    # Nobody who can write to the broker can do more than wake a worker.
    worker_enable_remote_control=False,
    # The worker waits for the broker as long as necessary, also at the start.
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options=_REDIS if settings.BROKER_URL.startswith("redis") else {},
    worker_redirect_stdouts=False,
)

_sending = threading.Lock()


def wake_workers(**_: object) -> None:
    """Have a worker poll, for `queries.models.stored`. One message at a time is sent, and nobody waits for it."""
    if _sending.acquire(blocking=False):
        threading.Thread(target=_send, name="broker wake-up", daemon=True).start()


def _send() -> None:
    try:
        app.send_task(TASK, expires=_EXPIRES_SECONDS)
    except Exception as error:  # noqa: BLE001 (the broker's libraries raise what they like)
        # The text of the error may contain the broker's URL, with a password.
        logger.warning("the broker can't be used: %s", type(error).__name__)
    finally:
        _sending.release()
