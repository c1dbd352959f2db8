"""Reports of errors to Sentry, or to a server with its protocol, if `settings.SENTRY_DSN` is set.

A report has the traceback without variables, the route, and the fields of log lines. It has no query, headers, cookies
or body of a request, no client's address, and no URL beyond its host. All text is redacted like the log. Reports are
sent in the background, and dropped if sending fails.
"""

import os
import re
from typing import Any, cast

from django.conf import settings

from chains.nodes.node_errors import secrets_of
from config import logs
from config.configured_chains import get_chains
from config.logs import redact, redact_all

# Seconds that an ending process waits for reports that are being sent.
_SHUTDOWN_SECONDS = 2
# A password may come before a URL's host, and a provider's key after it.
_URL = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)(?:[^\s/@\"']*@)?([^\s/?#\"'<>]*)[^\s\"'<>]*")
_MIN_SECRET_CHARS = 8
# Loggers of requests that Django refuses, for example because of unknown host names or too many fields.
_LOGGERS_OF_REFUSALS = "django.security."


def start() -> None:
    # `config.stateless` has no such setting.
    if not getattr(settings, "SENTRY_DSN", ""):
        return
    # This import takes much of a second.
    import sentry_sdk  # noqa: PLC0415
    from sentry_sdk.integrations.django import DjangoIntegration  # noqa: PLC0415

    sentry_sdk.init(
        dsn=settings.SENTRY_DSN,
        send_default_pii=False,
        include_local_variables=False,
        max_request_body_size="never",
        # Breadcrumbs and trace headers would contain the URLs that HTTP clients request.
        max_breadcrumbs=0,
        auto_enabling_integrations=False,
        trace_propagation_targets=[],
        integrations=[DjangoIntegration(transaction_style="url", middleware_spans=False, signals_spans=False)],
        before_send=cast("Any", _redacted),
        shutdown_timeout=_SHUTDOWN_SECONDS,
        # If it has no value, sentry_sdk runs git to find one.
        release=os.environ.get("SENTRY_RELEASE", "batch-query-service"),
    )


def _redacted(event: dict[str, Any], _: dict[str, Any]) -> dict[str, Any] | None:
    """Return the event with only its permitted parts. None for a refused request, because clients can cause any number.

    It runs in the thread that failed, and adds that thread's log context.
    """
    if (event.get("logger") or "").startswith(_LOGGERS_OF_REFUSALS):
        return None
    request = event.pop("request", None) or {}
    for name in ("user", "server_name", "modules", "extra"):
        event.pop(name, None)
    if "method" in request:
        event["request"] = {"method": request["method"]}
    event["tags"] = {**(event.get("tags") or {}), **{name: str(value) for name, value in logs.fields().items()}}
    secrets = _secrets()

    def without(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, "[redacted]")
        return _URL.sub(r"\1\2/[redacted]", redact(text))

    redacted: dict[str, Any] = redact_all(event, without)
    return redacted


def _secrets() -> list[str]:
    """Return the installation's own secrets, longest first, so that they can be removed from texts."""
    password = str(settings.DATABASES["default"].get("PASSWORD") or "")
    named = [settings.SECRET_KEY, settings.API_KEY_SECRET, settings.METRICS_TOKEN, password]
    named += [settings.OPERATOR_WEBHOOK_SECRET, *secrets_of(settings.OPERATOR_WEBHOOK_URL)]
    if get_chains.cache_info().currsize:
        named += [secret for chain in get_chains().chains for url in chain.rpc_urls for secret in secrets_of(url)]
    return sorted((secret for secret in named if len(secret) >= _MIN_SECRET_CHARS), key=len, reverse=True)
