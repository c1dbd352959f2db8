"""The broker, by which a submission wakes a worker of Celery. None is needed: workers poll."""

from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from config.environment import env_hidden


def _can_be_used(url: str) -> bool:
    try:
        parsed = urlsplit(url)
        return parsed.scheme in {"redis", "rediss", "amqp", "amqps"} and bool(parsed.hostname) and parsed.port != 0
    except ValueError:  # Its port is no number, which a password with a slash or a # also leads to.
        return False


BROKER_URL = env_hidden("BROKER_URL")
if BROKER_URL and not _can_be_used(BROKER_URL):
    # The URL isn't quoted: it holds a password.
    raise ImproperlyConfigured(
        "BROKER_URL must be redis://:password@host:port/number or amqp://user:password@host:port/name, with rediss or "
        "amqps for TLS, and with %2F for a slash in the password."
    )
