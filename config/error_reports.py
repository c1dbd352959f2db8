"""Reports of errors to Sentry, or to what speaks its protocol, where `settings.SENTRY_DSN` says so.

A report has the traceback without the variables, the route, and what log lines say: nothing of a request's query,
headers, cookies and body, nobody's address, and no URL beyond its host. Whatever text is left goes through the same
redaction as the log. Reports are sent by a thread of their own, and dropped where they can't be.
"""

import os
import re
from typing import Any, cast

from django.conf import settings

from chains.node_errors import secrets_of
from config import logs
from config.configured_chains import get_chains
from config.logs import redact, redact_all

# How long a process waits at its end for reports that are under way.
_SHUTDOWN_SECONDS = 2
# Whatever is behind the host may be a provider's key; what is before it, a password.
_URL = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)(?:[^\s/@\"']*@)?([^\s/?#\"'<>]*)[^\s\"'<>]*")
_MIN_SECRET_CHARS = 8
# Unknown host names, too many fields of a form, and the like.
_LOGGERS_OF_REFUSALS = "django.security."


def start() -> None:
    # Commands without an installation have no such setting.
    if not getattr(settings, "SENTRY_DSN", ""):
        return
    # It takes a good part of a second to load.
    import sentry_sdk  # noqa: PLC0415
    from sentry_sdk.integrations.django import DjangoIntegration  # noqa: PLC0415

    sentry_sdk.init(
        dsn=settings.SENTRY_DSN,
        send_default_pii=False,
        include_local_variables=False,
        max_request_body_size="never",
        # They, and headers of traces, would tell others of the URLs that HTTP clients ask.
        max_breadcrumbs=0,
        auto_enabling_integrations=False,
        trace_propagation_targets=[],
        integrations=[DjangoIntegration(transaction_style="url", middleware_spans=False, signals_spans=False)],
        before_send=cast("Any", _redacted),
        shutdown_timeout=_SHUTDOWN_SECONDS,
        # Otherwise it would ask git for it.
        release=os.environ.get("SENTRY_RELEASE", "batch-query-service"),
    )


def _redacted(event: dict[str, Any], _: dict[str, Any]) -> dict[str, Any] | None:
    """Return an event with what it may tell, or None for a refusal, which any client can cause as often as it likes.

    It is made in the thread that failed, whose log context it gets.
    """
    if (event.get("logger") or "").startswith(_LOGGERS_OF_REFUSALS):
        return None
    asked = event.pop("request", None) or {}
    for name in ("user", "server_name", "modules", "extra"):
        event.pop(name, None)
    if "method" in asked:
        event["request"] = {"method": asked["method"]}
    event["tags"] = {**(event.get("tags") or {}), **{name: str(one) for name, one in logs.fields().items()}}
    secrets = _secrets()

    def without(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, "[redacted]")
        return _URL.sub(r"\1\2/[redacted]", redact(text))

    redacted: dict[str, Any] = redact_all(event, without)
    return redacted


def _secrets() -> list[str]:
    """Return the installation's own secrets, longest first. They must not be in any text, wherever it comes from."""
    password = str(settings.DATABASES["default"].get("PASSWORD") or "")
    named = [settings.SECRET_KEY, settings.API_KEY_SECRET, settings.METRICS_TOKEN, password]
    if get_chains.cache_info().currsize:
        named += [secret for chain in get_chains().chains for url in chain.rpc_urls for secret in secrets_of(url)]
    return sorted((one for one in named if len(one) >= _MIN_SECRET_CHARS), key=len, reverse=True)
