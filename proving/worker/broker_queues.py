"""The broker that `BROKER_URL` names: its queues, one for each route, and the message that has a worker look at one."""

from celery import Celery
from django.conf import settings
from kombu import Connection, Producer, Queue

from proving.worker import routes
from proving.worker.routes import Route

PROVE = "prove"
"""The task that `proving.worker.celery_app` does."""

# For the broker's answers, in seconds: one that hangs holds up no shutdown. Celery waits for messages by other means.
_CONNECT_SECONDS, _ANSWER_SECONDS = 3, 5
# A message that a killed worker had comes back after this, in seconds, and finds that the sweeps were there before.
_BACK_SECONDS = 600

_OF_REDIS: dict[str, object] = {
    "visibility_timeout": _BACK_SECONDS,
    "socket_connect_timeout": _CONNECT_SECONDS,
    "socket_timeout": _ANSWER_SECONDS,
    "socket_keepalive": True,
}
_OF_RABBITMQ: dict[str, object] = {"read_timeout": _ANSWER_SECONDS, "write_timeout": _ANSWER_SECONDS}


def _transport_options() -> dict[str, object]:
    return _OF_REDIS if settings.BROKER_URL.startswith("redis") else _OF_RABBITMQ


def _queue(route: Route) -> Queue:
    return Queue(route.queue, routing_key=route.queue)


# Celery's own ways of setting up Django serve processes that it forks.
app = Celery("proving", broker=settings.BROKER_URL, fixups=[], set_as_current=False)
app.conf.update(
    task_queues=[_queue(route) for route in routes.every()],
    # A misspelt queue in `-Q` is refused.
    task_create_missing_queues=False,
    # Tasks wait for nodes, and share their exchanges by greenlets inside of threads.
    worker_pool="threads",
    worker_concurrency=4,
    # A process has as many messages as threads. It gives one back, unanswered, when it has done what it stands for:
    # until then it takes no other, which an idle process could answer.
    worker_prefetch_multiplier=1,
    task_acks_late=True,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    # Messages are names of routes, and rows tell how things went.
    task_serializer="json",
    accept_content=["json"],
    task_ignore_result=True,
    task_default_delivery_mode="transient",
    # Nobody who can write to the broker can do more than notify.
    worker_enable_remote_control=False,
    worker_send_task_events=False,
    # The broker is waited for, as long as it takes, at the start as well.
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_connection_timeout=_CONNECT_SECONDS,
    broker_transport_options=_transport_options(),
    worker_redirect_stdouts=False,
)


def connect() -> Connection:
    """Return a connection that is open, or raise."""
    connection: Connection = app.connection_for_write(settings.BROKER_URL, transport_options=_transport_options())
    connection.connect()
    return connection


def notify(route: Route, producer: Producer) -> None:
    """Send the message, once."""
    app.send_task(PROVE, (route.kind, route.lane), queue=route.queue, producer=producer, retry=False)
