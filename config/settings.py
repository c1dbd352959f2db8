"""What an operator sets, read from the environment, and what Django needs to know beside it.

The defaults run the whole service on one machine with nothing to install. A value that can't be read ends the process
with a sentence for each fault. Other constants are in the modules that use them.
"""

import logging
import os
import re
import secrets
import sys
from contextlib import suppress
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlsplit

from csp.constants import NONE, SELF
from environs import Env, EnvValidationError, ValidationError, validate

from config.api_paths import ApiPaths
from config.logs import to_console
from config.private_files import new_private_file

BASE_DIR = Path(__file__).resolve().parent.parent

# Settings of former versions. Without a word they would have no effect.
GONE = {
    "DAILY_GAS_BUDGET": "a chain's daily_limit_per_user in chains.toml bounds a user's batches; 0 is nothing.",
    "DATABASE_POOL_SIZE": "each process opens at most 16 connections.",
    "DATABASE_TIMEOUT_SECONDS": "a web process waits for 5 s, others for 20 s.",
    "KEEP_ACCOUNT_EVENTS_DAYS": "the log of keys and sessions is kept for 90 days.",
    "KEEP_BEACON_DATA_DAYS": "what old blocks are proven by is kept for 90 days after it was last used.",
    "KEEP_IDEMPOTENCY_KEYS_DAYS": "idempotency keys are kept for one day.",
    "KEEP_KEY_USES_DAYS": "keys show when they were last used, and no number of requests.",
    "KEEP_PATH_HEADERS_DAYS": "headers of paths are kept.",
    "KEEP_SESSIONS_DAYS": "ended sessions are kept for one day.",
    "KEEP_SIGN_IN_NONCES_DAYS": "nonces are kept for one day.",
    "KEEP_THROTTLE_COUNTS_DAYS": "counts of requests are kept for one day.",
    "LIVENESS_BIND": "the web server answers /livez.",
    "MAX_BODY_BYTES": "a request may have 4 MiB.",
    "MAX_CONNECTIONS": "the proxy bounds connections: docs/operating/nginx.conf.",
    "MAX_NAMES_PER_BATCH": "a batch may have 50 names.",
    "MAX_OPEN_BLOCKS": "MAX_OPEN_QUERIES bounds blocks too.",
    "MAX_READS_PER_MINUTE": "one client address may read 30 files a minute.",
    "MAX_STORED_MEGABYTES": "MAX_OPEN_QUERIES bounds what users store.",
    "REQUEST_ID_HEADER": "each request gets an id here, which the answer's X-Request-Id tells the proxy.",
    "SQLITE_TIMEOUT_SECONDS": "a web process waits for 5 s, others for 20 s.",
    "STATIC_DIR": "static files are in STATE_DIR/static, or in the folder `collected` beside the code if there is one.",
}

# --- How values are read ----------------------------------------------------------------------------------------------

env = Env(eager=False)
_ONE_OR_MORE = validate.Range(min=1)
_FROM_ZERO = validate.Range(min=0)
# The last label of a name is not a number: then it would be an odd spelling of an address.
_HOST_NAME = re.compile(r"(?:[A-Za-z0-9_-]{1,63}\.)*[A-Za-z_-][A-Za-z0-9_-]{0,62}", re.ASCII)


@env.parser_for("items")
def _items(value: str) -> list[str]:
    """Return what is separated by commas."""
    return [item.strip() for item in value.split(",") if item.strip()]


@env.parser_for("networks")
def _networks(value: str, *, names: bool = False) -> list[IPv4Network | IPv6Network | str]:
    """Return networks, and with `names` also names of hosts, in lower case."""
    found: list[IPv4Network | IPv6Network | str] = []
    for item in _items(value):
        try:
            found.append(ip_network(item))
        except ValueError as error:
            if not (names and _HOST_NAME.fullmatch(item)):
                what = "networks such as 10.0.0.0/8, or names of hosts" if names else "networks such as 10.0.0.0/8"
                raise ValidationError(f"Must be {what}: {error}.") from None
            found.append(item.lower())
    return found


@env.parser_for("days")
def _days(value: str) -> int | None:
    """Return a number of days. None, for ever, is written as `never` or as nothing."""
    if value in {"", "never"}:
        return None
    if not value.isdecimal() or not int(value):
        raise ValidationError("Must be a number of days, 1 or more, or never.")
    return int(value)


@env.parser_for("base_url")
def _base_url(value: str) -> str:
    parsed = urlsplit(value.rstrip("/"))
    if parsed.scheme not in {"http", "https"} or not parsed.hostname or parsed.path or parsed.query:
        raise ValidationError(f"Must look like https://example.org, not {value!r}.")
    return parsed.geturl()


@env.parser_for("folder")
def _folder(value: str) -> Path:
    """Return a folder that is there, or is made for its owner alone."""
    try:
        Path(value).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ValidationError(f"{value} can't be used: {error.strerror}.") from None
    return Path(value)


@env.parser_for("content")
def _content(path: str) -> str:
    """Return what is in a file, and nothing where none is named."""
    if not path:
        return ""
    try:
        text = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError):
        text = ""
    if not text:
        # What is named isn't quoted: it may be the secret itself, by mistake.
        raise ValidationError("The file that it names can't be read, or is empty.")
    return text


def _secret(name: str) -> str:
    """Return what is in `NAME`, else in the file that `NAME_FILE` names; empty where neither is set."""
    secret: str = env.str(name, "") or env.content(f"{name}_FILE", "")
    return secret


def _is_broker(url: str) -> bool:
    try:
        parsed = urlsplit(url)
        return parsed.scheme in {"redis", "rediss", "amqp", "amqps"} and bool(parsed.hostname) and parsed.port != 0
    except ValueError:  # Its port is no number, which a password with a slash or a # also leads to.
        return False


def _postgresql(url: str) -> dict[str, Any]:
    """Return what the URL says, as Django takes it. Empty where it can't be read."""
    import dj_database_url  # noqa: PLC0415 (no command waits for it where the database is SQLite)

    try:
        parsed: dict[str, Any] = {**dj_database_url.parse(url)}
    except Exception:  # noqa: BLE001 (whatever it can't read)
        return {}
    return parsed if parsed.get("ENGINE") == "django.db.backends.postgresql" and parsed["NAME"] else {}


def _generated(path: Path) -> str:
    """Return the secret in the file, which the first start makes.

    So an installation works before anything is configured, and never shares a secret with another one. Of two processes
    that start at once one makes the file, and both read it.
    """
    try:
        if not path.exists():
            with suppress(FileExistsError), new_private_file(path) as draft:
                draft.write_text(secrets.token_urlsafe(64))
        return path.read_text().strip() or sys.exit(f"{path} is empty: a secret belongs in it.")
    except OSError as error:
        sys.exit(f"{path} can't be kept: {error.strerror}. STATE_DIR must be writable, or secrets must be set.")


# --- What an operator sets --------------------------------------------------------------------------------------------

# The address that people type. Sign-in messages are bound to it, never to the Host header of a request. It decides how
# strict security is. With `https` cookies, redirects and HSTS are strict. With `http`, for one's own machine, they are
# not, because browsers would not send the cookies at all.
BASE_URL: str = env.base_url("BASE_URL", "http://127.0.0.1:8000")
_other_hosts: list[str] = env.items("ALLOWED_HOSTS", "")
_hsts_seconds = env.int("HSTS_SECONDS", 365 * 24 * 3600, validate=_FROM_ZERO)
_is_behind_tls_proxy = env.bool("BEHIND_TLS_PROXY", default=False)
# The header in which a reverse proxy in front of us puts the client's address, such as X-Real-IP. Empty: no proxy.
CLIENT_ADDRESS_HEADER = env.str("CLIENT_ADDRESS_HEADER", "")

# Where the installation keeps what it makes: the SQLite database, generated secrets, collected static files.
STATE_DIR: Path = env.folder("STATE_DIR", str(BASE_DIR / ".state"))
CHAINS_FILE = env.path("CHAINS_FILE", BASE_DIR / "chains.toml")
_sqlite_file = env.path("SQLITE_FILE", None)
_database_url = _secret("DATABASE_URL")
# The broker, by which a submission wakes a worker of Celery. None is needed: workers poll.
BROKER_URL = _secret("BROKER_URL")
SECRET_KEY = _secret("SECRET_KEY")
# API keys are derived from a secret of their own, so they survive a new SECRET_KEY, which ends all sessions.
API_KEY_SECRET = _secret("API_KEY_SECRET")

# Who may sign in: addresses, or * for anyone. Empty means anyone only where no destination costs real money.
ALLOWED_ADDRESSES: list[str] = env.items("ALLOWED_ADDRESSES", "")
# Who may use the admin: addresses. They may also sign in and have keys.
OPERATOR_ADDRESSES: list[str] = env.items("OPERATOR_ADDRESSES", "")
# Whether everybody may see the list of everybody's batches. A batch's page needs its link either way.
PUBLIC_BATCH_LIST = env.bool("PUBLIC_BATCH_LIST", default=False)

# Of one batch. Queries are counted as accounts, slots and headers, here and below.
MAX_QUERIES_PER_BATCH = env.int("MAX_QUERIES_PER_BATCH", 10_000, validate=_ONE_OR_MORE)
# How far above the head a block may be for a batch to wait for it, in blocks.
MAX_BLOCKS_AHEAD = env.int("MAX_BLOCKS_AHEAD", 64, validate=_FROM_ZERO)
# How long a batch may take before it is rejected.
BATCH_DEADLINE_SECONDS = env.int("BATCH_DEADLINE_SECONDS", 24 * 3600, validate=_ONE_OR_MORE)
# Of one user in a minute. The largest batch must fit.
MAX_BATCHES_PER_MINUTE = env.int("MAX_BATCHES_PER_MINUTE", 60, validate=_ONE_OR_MORE)
MAX_QUERIES_PER_MINUTE = env.int(
    "MAX_QUERIES_PER_MINUTE", 3 * (MAX_QUERIES_PER_BATCH or 0), validate=validate.Range(min=MAX_QUERIES_PER_BATCH)
)
# What one user may have open at a time.
MAX_OPEN_BATCHES = env.int("MAX_OPEN_BATCHES", 1000, validate=_ONE_OR_MORE)
MAX_OPEN_QUERIES = env.int("MAX_OPEN_QUERIES", 100_000, validate=_ONE_OR_MORE)
# Sign-ins that one client address starts in a minute.
MAX_SIGN_INS_PER_MINUTE = env.int("MAX_SIGN_INS_PER_MINUTE", 20, validate=_ONE_OR_MORE)
# After how many hours without a request a session ends.
SESSION_IDLE_HOURS = env.int("SESSION_IDLE_HOURS", 24, validate=validate.Range(min=1, max=336))
# How long a worker holds a lane without renewing that. After that, another worker takes it.
LEASE_SECONDS = env.int("LEASE_SECONDS", 20, validate=_ONE_OR_MORE)

# For development: networks, and names of hosts, that may be sent to although they are not public; by http and at other
# ports, too.
WEBHOOK_ALLOW: list[IPv4Network | IPv6Network | str] = env.networks("WEBHOOK_ALLOW", "", names=True)
# The operator's own networks that have public addresses.
WEBHOOK_REFUSE: list[IPv4Network | IPv6Network | str] = env.networks("WEBHOOK_REFUSE", "")

# How long is kept what nobody needs for ever, in days; None: for ever. `proving.pruning` prunes what is older. What is
# open, or can still change on a chain, is kept whatever is set here. What users see goes only where an operator has
# said so.
# Since a batch was done or rejected: the trie nodes of its proofs, and so its proof bundles; and its steps one by one.
KEEP_PROOFS_DAYS: int | None = env.days("KEEP_PROOFS_DAYS", "never")
KEEP_STEPS_DAYS: int | None = env.days("KEEP_STEPS_DAYS", "never")
# Since a transaction was mined: what was sent, of final ones. The chain has it too.
KEEP_CALLDATA_DAYS: int | None = env.days("KEEP_CALLDATA_DAYS", "90")
# Since webhooks were delivered, or given up: what was sent; and since the batch ended, where to.
KEEP_WEBHOOK_DELIVERIES_DAYS: int | None = env.days("KEEP_WEBHOOK_DELIVERIES_DAYS", "30")

_log_level = env.log_level("LOG_LEVEL", logging.INFO)
# For people, or for what collects logs. config/gunicorn.py reads it too.
LOG_FORMAT = env.str("LOG_FORMAT", "line", validate=validate.OneOf(["line", "json"]))
# Where errors are reported to, beside the log; empty: nowhere.
SENTRY_DSN = _secret("SENTRY_DSN")
# A bearer token that also grants access to the metrics: `Authorization: Bearer …`.
METRICS_TOKEN = _secret("METRICS_TOKEN")
# Who else may: clients of these networks, and by default of this machine alone.
METRICS_ALLOWED_NETWORKS: list[IPv4Network | IPv6Network] = env.networks("METRICS_ALLOWED_NETWORKS", "127.0.0.0/8,::1")
# Where a worker serves its own; 0: nowhere.
METRICS_PORT = env.int("METRICS_PORT", 0, validate=_FROM_ZERO)
# Django's debug pages. Never where others can reach them.
DEBUG = env.bool("DEBUG", default=False)

_faults = [f"{name} is no longer a setting: {instead}" for name, instead in GONE.items() if name in os.environ]
try:
    env.seal()
except EnvValidationError as error:
    _unread = cast("dict[str, list[str]]", error.error_messages)
    _faults += [f"{name}: {' '.join(messages)}" for name, messages in _unread.items()]
# Neither URL is quoted: they hold passwords.
if BROKER_URL and not _is_broker(BROKER_URL):
    _faults.append(
        "BROKER_URL must be redis://:password@host:port/number or amqp://user:password@host:port/name, with rediss or "
        "amqps for TLS, and with %2F for a slash in the password."
    )
if _database_url and not (_server := _postgresql(_database_url)):
    _faults.append("DATABASE_URL must be postgresql://user:password@host:port/database.")
if _faults:
    sys.exit("\n".join(_faults))

# --- What follows from it ---------------------------------------------------------------------------------------------

SECRET_KEY = SECRET_KEY or _generated(STATE_DIR / "secret_key")
API_KEY_SECRET = API_KEY_SECRET or _generated(STATE_DIR / "api_key_secret")

_https = BASE_URL.startswith("https:")
ALLOWED_HOSTS = [urlsplit(BASE_URL).hostname or "", *_other_hosts]
CSRF_TRUSTED_ORIGINS = [BASE_URL]
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = _https
# A browser takes a cookie with this prefix from this host alone, over https (RFC 6265bis).
SESSION_COOKIE_NAME, CSRF_COOKIE_NAME = (f"{'__Host-' * _https}{name}" for name in ("sessionid", "csrftoken"))
SECURE_HSTS_SECONDS = _hsts_seconds if _https else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = bool(SECURE_HSTS_SECONDS)
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if _is_behind_tls_proxy else None

DATABASES: dict[str, dict[str, Any]]
if _database_url:
    from psycopg import IsolationLevel

    _server |= {
        "CONN_MAX_AGE": 0,
        # The pool tries a connection before it gives it away: the server may have ended it, as when it was restarted.
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {
            "connect_timeout": 10,
            # How PostgreSQL locks. Transactions run side by side: each statement reads what was committed before it
            # began, and what one has read may change before the next. So rows are locked before what is written depends
            # on them, in the order that `database.statements` says. Whatever the server's defaults are, the code is
            # written for this.
            "isolation_level": IsolationLevel.READ_COMMITTED,
            # No transaction here waits for anything but the database. One whose process is frozen, or whose machine is
            # gone, must not keep its locks: others wait for less than `lock_timeout`, and go on.
            "options": "-c lock_timeout=20s -c idle_in_transaction_session_timeout=5s",
            # Each process has its pool. A thread takes a connection from it when it first asks, and gives it back at
            # the end of its request or its turn. By default the pool tries to connect for minutes, ever more
            # seldom, and nobody else may meanwhile.
            "pool": {"min_size": 0, "max_size": 16, "timeout": 20, "reconnect_timeout": 1},
            **_server.get("OPTIONS", {}),
        },
    }
    DATABASES = {"default": _server}
else:
    DATABASES = {
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            # The file that is there (mode=rw): a file that is gone is an outage. An empty one would be taken for the
            # database, and SQLite would throw away the log (WAL) beside it, with what was committed last.
            "NAME": f"file:{quote(str((_sqlite_file or STATE_DIR / 'db.sqlite3').absolute()))}?mode=rw",
            # In seconds. To open a connection takes longer than to answer the status of a batch. But one that is kept
            # goes on with a file that was moved away.
            "CONN_MAX_AGE": 1,
            # How SQLite locks, which the whole service relies on. One lock covers the whole database, and one process
            # holds it at a time; there are no locks of rows, so `select_for_update` does nothing here: it is for
            # databases that have them. Each transaction takes the lock at its beginning (BEGIN IMMEDIATE) and keeps it
            # until its end: transactions run one after another, and what one reads stays true until it ends. Without
            # IMMEDIATE, a transaction that reads first and writes later would fail at once where another has written. A
            # statement outside a transaction takes the lock for itself. WAL lets readers go on meanwhile, each with the
            # database as it was when its reading began. FULL: what was answered or broadcast survives a power cut.
            "OPTIONS": {
                "timeout": 20,
                "transaction_mode": "IMMEDIATE",
                "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;",
            },
        }
    }

LOGGING = {
    **to_console(LOG_FORMAT),
    "root": {"handlers": ["console"], "level": _log_level},
    "loggers": {
        # By default Django mails admins and has a handler of its own. Here, all logs go to one place.
        "django": {"handlers": [], "propagate": True},
        "django.server": {"handlers": [], "propagate": True},
        # At DEBUG these log URLs of nodes, which may hold a provider's key.
        "urllib3": {"level": "INFO"},
        "web3": {"level": "INFO"},
        # Two lines for each message otherwise, of which most only say where to look.
        "celery.worker.strategy": {"level": "WARNING"},
        "celery.app.trace": {"level": "WARNING"},
    },
}

# --- What is installed ------------------------------------------------------------------------------------------------

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "corsheaders",
    "csp",
    "django_htmx",
    "ninja",  # for the page of the API: its template, scripts and styles
    "accounts",
    "queries",
    "proving",
    "explorer",
    # For its commands. An attester runs in a process of its own, with settings of its own.
    "attesting",
]

MIDDLEWARE = [
    # Must be first: it removes the API key from the request before anything could log it.
    "accounts.middleware.ApiKeyMiddleware",
    "config.request_log.RequestMiddleware",
    "queries.api_endpoint.JsonErrorsMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "corsheaders.middleware.CorsMiddleware",
    "config.unusual_requests.UnusualRequestMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
API_PATHS = ApiPaths(
    "/submit-batch-query",
    "/estimate-batch-query",
    "/batch-query-status",
    "/chain-connections",
    "/webhook-deliveries",
    "/webhook-deliveries/<deliveryId>/send-again",
    "/batch-queries",
    "/batch-queries/<internalId>",
    "/batch-queries/<internalId>/cancel",
    "/batch-queries/<internalId>/transactions",
    "/facts",
    "/is-alive",
)
# Of these, the paths that are a page to people.
PAGES_OF_API_PATHS = frozenset({"/facts"})
# Of the form of a new batch. It alone is multipart/form-data.
LARGE_FORM_PATHS = frozenset({"/new-batch", "/new-batch/estimate"})
# The API's paths have no trailing slash (docs/specification.md, "Conventions"), and no path may exist twice.
APPEND_SLASH = False
# Of one request. Files of a form with more are dropped: nothing of a request is written to disk.
DATA_UPLOAD_MAX_MEMORY_SIZE = FILE_UPLOAD_MAX_MEMORY_SIZE = 4 * 1024 * 1024
FILE_UPLOAD_HANDLERS = ["django.core.files.uploadhandler.MemoryFileUploadHandler"]
# The form of a new batch has up to 50 rows of up to 34 fields, 1,713 parts in all. Of multipart/form-data, all count.
DATA_UPLOAD_MAX_NUMBER_FIELDS = 2000

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,  # for the admin
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
            "builtins": ["django_htmx.templatetags.django_htmx"],
        },
    }
]

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- People -----------------------------------------------------------------------------------------------------------

AUTH_USER_MODEL = "accounts.User"
LOGIN_URL = "accounts:sign_in"
LOGIN_REDIRECT_URL = "explorer:dashboard"
SESSION_ENGINE = "accounts.idle_sessions"
SESSION_COOKIE_AGE = 14 * 24 * 3600

# Programs that lack the token get JSON, like every other answer to them.
CSRF_FAILURE_VIEW = "accounts.sign_in_views.csrf_failure"

# --- Security ---------------------------------------------------------------------------------------------------------

# Monitors ask the service directly, without the TLS of a proxy before it.
SECURE_REDIRECT_EXEMPT = [r"^(healthz|livez|readyz|metrics)$"]
# `no-referrer` would break the CSRF check of plain forms in Chromium, which then sends `Origin: null`.
SECURE_REFERRER_POLICY = "same-origin"

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "base-uri": [NONE],
        "connect-src": [SELF],
        "font-src": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
        "img-src": [SELF, "data:"],
        "script-src": [SELF],
        "style-src": [SELF],
    }
}

# Any origin may call the API, and nothing else: programs in browsers send the key in a header, never as a cookie.
CORS_URLS_REGEX = API_PATHS.regex.removesuffix("$") + "/?$"  # Browsers are to read that nothing is there.
CORS_ALLOW_ALL_ORIGINS = True
CORS_ALLOW_CREDENTIALS = False
CORS_ALLOW_METHODS = ("GET", "POST", "OPTIONS")
CORS_ALLOW_HEADERS = ("accept", "api-key", "content-type", "idempotency-key", "if-none-match")
CORS_EXPOSE_HEADERS = ("etag", "idempotency-replayed", "retry-after", "x-request-id")

# --- Pages ------------------------------------------------------------------------------------------------------------

LANGUAGE_CODE = "en"
USE_I18N = False
USE_TZ = True
TIME_ZONE = "UTC"

STATIC_URL = "static/"
# An image has the static files of its version, and its state is elsewhere.
_collected = BASE_DIR / "collected"
STATIC_ROOT = _collected if _collected.is_dir() else STATE_DIR / "static"
STATICFILES_DIRS = [BASE_DIR / "static"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "config.static_files.StaticFilesStorage"},
}
