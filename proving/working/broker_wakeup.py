"""The broker that `BROKER_URL` names. Its only message says that a batch was submitted, so a worker should poll now.

The rows in the database are the queue. If a message is lost, late, repeated or forged, this only changes when a worker
polls.
"""

import logging
import threading

from celery import Celery
from django.conf import settings

logger = logging.getLogger(__name__)

TASK = "tick"
"""The task that `proving.celery_app` does. Workers of other versions know it by this name."""

# Seconds after which a message expires. Workers poll long before. The clocks of two machines should differ by less.
_EXPIRES_SECONDS = 60
# Time-outs for Redis in seconds. RabbitMQ's client notices a lost connection by itself.
_REDIS = {"socket_connect_timeout": 3, "socket_timeout": 5, "socket_keepalive": True}

# Celery's fixup for Django is left out, because it is for processes that Celery forks.
app = Celery("proving", broker=settings.BROKER_URL, fixups=[], set_as_current=False)
app.conf.update(
    task_default_queue="ticks",
    # An older version's queue name in `-Q` is an error.
    task_create_missing_queues=False,
    # `Worker` has its own threads for the work, so Celery's task only wakes it.
    worker_pool="threads",
    worker_concurrency=1,
    task_ignore_result=True,
    task_default_delivery_mode="transient",
    # A client that can write to the broker must not control workers.
    worker_enable_remote_control=False,
    # The worker waits for the broker as long as necessary, also at the start.
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options=_REDIS if settings.BROKER_URL.startswith("redis") else {},
    worker_redirect_stdouts=False,
)

_sending = threading.Lock()


def wake_workers(**_: object) -> None:
    """Let a worker poll, as the receiver of `queries.models.stored`.

    The message is sent in the background. If one is being sent, no other is needed.
    """
    if _sending.acquire(blocking=False):
        threading.Thread(target=_send, name="broker wake-up", daemon=True).start()


def _send() -> None:
    try:
        app.send_task(TASK, expires=_EXPIRES_SECONDS)
    except Exception as error:  # noqa: BLE001 (the broker's libraries raise many kinds of exceptions)
        # The error's text may contain the broker's URL with its password.
        logger.warning("the broker can't be used: %s", type(error).__name__)
    finally:
        _sending.release()
