"""The operator's settings, which are read from the environment, and Django's settings.

The defaults run the whole service on one machine without other servers. If a value can't be read, the process ends with
a sentence for each fault. Other constants are in the modules that use them.
"""

import logging
import re
import secrets
import sys
import tomllib
from base64 import b64decode
from contextlib import suppress
from importlib.util import find_spec
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

# --- Reading of values ------------------------------------------------------------------------------------------------

env = Env(eager=False)
_ONE_OR_MORE = validate.Range(min=1)
_FROM_ZERO = validate.Range(min=0)
# A host name. Its last label isn't a number, because such a name would be an unusual form of an IP address.
_HOST_NAME = re.compile(r"(?:[A-Za-z0-9_-]{1,63}\.)*[A-Za-z_-][A-Za-z0-9_-]{0,62}", re.ASCII)


_PORTS = {"http": ":80", "https": ":443"}
# A host in a request that Django takes, with a port or without. Names with an underscore are none (RFC 952).
_HOST_IN_REQUESTS = re.compile(r"(?:[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*|\[[0-9A-Fa-f:.]+\])(?P<port>:\d+)?", re.ASCII)


@env.parser_for("items")
def _items(value: str) -> list[str]:
    """Return the items between commas."""
    return [item.strip() for item in value.split(",") if item.strip()]


@env.parser_for("hosts")
def _hosts(value: str) -> list[str]:
    """Return host names and addresses, as browsers send them, without a port."""
    # Django leaves out the dot behind a name in a request.
    hosts = [host.removesuffix(".") for host in _items(value)]
    for host in hosts:
        _require_ascii(host)
        known = _HOST_IN_REQUESTS.fullmatch(host.removeprefix("."))
        if host != "*" and (not known or known["port"]):
            raise ValidationError(f"Must be names of hosts such as a.example, or .example, without port, not {host!r}.")
    return hosts


def _require_ascii(name: str) -> None:
    if not name.isascii():
        raise ValidationError(f"Write the name as browsers send it, with xn-- (RFC 5891), not {name!r}.")


@env.parser_for("networks")
def _networks(value: str, *, names: bool = False) -> list[IPv4Network | IPv6Network | str]:
    """Return networks. With `names`, also return host names, in lower case."""
    networks: list[IPv4Network | IPv6Network | str] = []
    for item in _items(value):
        try:
            networks.append(ip_network(item))
        except ValueError as error:
            if not (names and _HOST_NAME.fullmatch(item)):
                expected = "networks such as 10.0.0.0/8, or host names" if names else "networks such as 10.0.0.0/8"
                raise ValidationError(f"Must be {expected}: {error}.") from None
            networks.append(item.lower())
    return networks


@env.parser_for("days")
def _days(value: str) -> int | None:
    """Return a number of days. None (for ever) if the value is `never` or empty."""
    if value in {"", "never"}:
        return None
    if not value.isdecimal() or not int(value):
        raise ValidationError("Must be a number of days, 1 or more, or never.")
    return int(value)


@env.parser_for("base_url")
def _base_url(value: str) -> str:
    """Return the URL as browsers send it: in lower case, and without the scheme's own port."""
    url = value.strip().rstrip("/")
    _require_ascii(url)
    scheme, _, host = url.lower().partition("://")
    if not _is_url(url, "http", "https") or not _HOST_IN_REQUESTS.fullmatch(host):
        raise ValidationError(f"Must look like https://example.org, not {value!r}.")
    return f"{scheme}://{host.removesuffix(_PORTS[scheme])}"


@env.parser_for("page_url")
def _page_url(value: str) -> str:
    if value and not re.match(r"https?://[^/]", value):
        raise ValidationError(f"Must look like https://example.org/page, not {value!r}.")
    return value.rstrip("/")


@env.parser_for("folder")
def _folder(value: str) -> Path:
    """Return a folder. If it is missing, create it so that only its owner can use it."""
    try:
        Path(value).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ValidationError(f"{value} can't be used: {error.strerror}.") from None
    return Path(value)


@env.parser_for("content")
def _content(path: str) -> str:
    """Return a file's content. Empty if no file is named."""
    if not path:
        return ""
    try:
        text = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError):
        text = ""
    if not text:
        # The name isn't quoted, because by mistake it may be the secret itself.
        raise ValidationError("The file that it names is unreadable or empty.")
    return text


def _secret(name: str) -> str:
    """Return the value of the variable, or else the content of the file in the variable `<name>_FILE`.

    Empty if neither is set.
    """
    secret: str = env.str(name, "") or env.content(f"{name}_FILE", "")
    return secret


def _is_url(url: str, *schemes: str) -> bool:
    try:
        parsed = urlsplit(url)
        return parsed.scheme in schemes and bool(parsed.hostname) and parsed.port != 0
    except ValueError:  # the port isn't a number, for example because the password has a slash or a #
        return False


def _is_webhook_secret(secret: str) -> bool:
    try:
        return secret.startswith("whsec_") and 24 <= len(b64decode(secret[6:], validate=True)) <= 64
    except ValueError:
        return False


def _postgresql(url: str) -> dict[str, Any]:
    """Return Django's settings for the database at a URL. Empty if the URL can't be read."""
    import dj_database_url  # noqa: PLC0415 (slow to load, and SQLite doesn't need it)

    try:
        parsed: dict[str, Any] = {**dj_database_url.parse(url)}
    except Exception:  # noqa: BLE001 (the library raises many kinds of exceptions)
        return {}
    return parsed if parsed.get("ENGINE") == "django.db.backends.postgresql" and parsed["NAME"] else {}


def _unknown_options(server: dict[str, Any]) -> list[str]:
    """Return the options of a database's URL that the installed libpq doesn't know. Other programs know more."""
    from psycopg.pq import Conninfo  # noqa: PLC0415 (slow to load, and SQLite doesn't need it)

    known = {option.keyword.decode() for option in Conninfo.get_defaults()}
    return sorted(server.get("OPTIONS", {}).keys() - known)


def _generated(path: Path) -> str:
    """Return the secret in the file. The first start generates it.

    So an installation works without configuration, and no two installations share a secret. If two processes start at
    the same time, one of them makes the file, and both read it.
    """
    try:
        if not path.exists():
            with suppress(FileExistsError), new_private_file(path) as draft:
                draft.write_text(secrets.token_urlsafe(64))
        return path.read_text().strip() or sys.exit(f"{path} is empty: it must have a secret.")
    except OSError as error:
        sys.exit(f"{path} can't be kept: {error.strerror}. STATE_DIR must be writable, or secrets must be set.")


# --- The operator's settings ------------------------------------------------------------------------------------------

# The address that people type. Sign-in messages are bound to it, and never to a request's Host header. With `https`,
# cookies, redirects and HSTS are strict. With `http`, which is meant for the operator's own machine, they are not,
# because browsers would not send the cookies.
BASE_URL: str = env.base_url("BASE_URL", "http://127.0.0.1:8000")
_other_hosts: list[str] = env.hosts("ALLOWED_HOSTS", "")
_hsts_seconds = env.int("HSTS_SECONDS", 365 * 24 * 3600, validate=_FROM_ZERO)
_is_behind_tls_proxy = env.bool("BEHIND_TLS_PROXY", default=False)
# The header in which a reverse proxy sends the client's address, such as X-Real-IP. Empty if there is no proxy.
CLIENT_ADDRESS_HEADER = env.str(
    "CLIENT_ADDRESS_HEADER",
    "",
    validate=validate.Regexp(r"[A-Za-z0-9-]*\Z", error="Must be a header's name such as X-Real-IP, not {input!r}."),
)
# All clients seem to have the proxy's address. Then no address has a share of a processor.
IS_CLIENT_HIDDEN = _is_behind_tls_proxy and not CLIENT_ADDRESS_HEADER

# The folder for files that the installation makes: the SQLite database, generated secrets, collected static files.
STATE_DIR: Path = env.folder("STATE_DIR", str(BASE_DIR / ".state"))
CHAINS_FILE = env.path("CHAINS_FILE", BASE_DIR / "chains.toml")
_sqlite_file = env.path("SQLITE_FILE", None)
_database_url = _secret("DATABASE_URL")
# The message broker by which a submission wakes a Celery worker. It is optional, because workers also poll.
BROKER_URL = _secret("BROKER_URL")
SECRET_KEY = _secret("SECRET_KEY")
# API keys are derived from a separate secret, so that they survive a new SECRET_KEY. A new SECRET_KEY ends all
# sessions.
API_KEY_SECRET = _secret("API_KEY_SECRET")

# Users who may sign in, or * for anyone. Empty means anyone, but only if no destination costs real money. An address
# stands for its own key alone, and chainId:address for a contract wallet of this chain.
ALLOWED_ADDRESSES: list[str] = env.items("ALLOWED_ADDRESSES", "")
# Users, in the same form, who may use the admin. They may also sign in and have keys.
OPERATOR_ADDRESSES: list[str] = env.items("OPERATOR_ADDRESSES", "")
# If True, everybody may see the list of all batches. Seeing a batch's page always needs only its link.
PUBLIC_BATCH_LIST = env.bool("PUBLIC_BATCH_LIST", default=False)

# The address of the service's source code, to which pages link, and to the documentation in it.
SOURCE_URL: str = env.page_url("SOURCE_URL", "")

# Maximum queries in one batch. Each account, slot and header counts as a query, here and below.
MAX_QUERIES_PER_BATCH = env.int("MAX_QUERIES_PER_BATCH", 10_000, validate=_ONE_OR_MORE)
# Maximum blocks above the head that a batch may wait for.
MAX_BLOCKS_AHEAD = env.int("MAX_BLOCKS_AHEAD", 64, validate=_FROM_ZERO)
# Seconds after which an unfinished batch is rejected.
BATCH_DEADLINE_SECONDS = env.int("BATCH_DEADLINE_SECONDS", 24 * 3600, validate=_ONE_OR_MORE)
# Limits per user and minute. The largest batch must fit.
MAX_BATCHES_PER_MINUTE = env.int("MAX_BATCHES_PER_MINUTE", 60, validate=_ONE_OR_MORE)
MAX_QUERIES_PER_MINUTE = env.int(
    "MAX_QUERIES_PER_MINUTE", 3 * (MAX_QUERIES_PER_BATCH or 0), validate=validate.Range(min=MAX_QUERIES_PER_BATCH)
)
# Maximum number of a user's unfinished batches.
MAX_OPEN_BATCHES = env.int("MAX_OPEN_BATCHES", 1000, validate=_ONE_OR_MORE)
# Maximum sign-ins that a client address may start in a minute.
MAX_SIGN_INS_PER_MINUTE = env.int("MAX_SIGN_INS_PER_MINUTE", 20, validate=_ONE_OR_MORE)
# Maximum share of a processor, in percent, that a client address may use in each process of the web server.
PROCESSOR_PERCENT = env.int("PROCESSOR_PERCENT", 25, validate=_ONE_OR_MORE)
# Hours without a request after which a session ends.
SESSION_IDLE_HOURS = env.int("SESSION_IDLE_HOURS", 24, validate=validate.Range(min=1, max=336))
# Seconds for which a worker holds a lane without renewing it. Then another worker may take the lane. Only tests and the
# demo change it.
LEASE_SECONDS = env.int("LEASE_SECONDS", 20, validate=_ONE_OR_MORE)

# Networks and host names that may receive webhooks although they are not public, also by http and at other ports. For
# development only.
WEBHOOK_ALLOW: list[IPv4Network | IPv6Network | str] = env.networks("WEBHOOK_ALLOW", "", names=True)
# The operator's own networks that have public addresses. Webhooks must not be sent there.
WEBHOOK_REFUSE: list[IPv4Network | IPv6Network | str] = env.networks("WEBHOOK_REFUSE", "")

# Days after which `proving.working.pruning` deletes data; None means never. Data of unfinished batches is always kept,
# and so is data that can still change on a chain. The defaults delete nothing that users see.
# These count from the end of a batch: for its trie nodes, which its proof bundles need, and for its steps.
KEEP_PROOFS_DAYS: int | None = env.days("KEEP_PROOFS_DAYS", "never")
KEEP_STEPS_DAYS: int | None = env.days("KEEP_STEPS_DAYS", "never")
# Days after which a final transaction's calldata is deleted. The chain has it too.
KEEP_CALLDATA_DAYS: int | None = env.days("KEEP_CALLDATA_DAYS", "90")

# The operator's own webhook, which is told of problems: any address, also a private one and by http. Empty: nobody is.
OPERATOR_WEBHOOK_URL = _secret("OPERATOR_WEBHOOK_URL")
# The secret that signs its messages, as `whsec_` and base64 (Standard Webhooks).
OPERATOR_WEBHOOK_SECRET = _secret("OPERATOR_WEBHOOK_SECRET")

_log_level = env.log_level("LOG_LEVEL", logging.INFO)
# `line` logs text for people, `json` logs JSON for a log collector. config/gunicorn.py reads this variable too.
LOG_FORMAT = env.str("LOG_FORMAT", "line", validate=validate.OneOf(["line", "json"]))
# A bearer token that grants access to the metrics: `Authorization: Bearer …`.
METRICS_TOKEN = _secret("METRICS_TOKEN")
# Networks whose clients may read the metrics without the token. The default is this machine.
METRICS_ALLOWED_NETWORKS: list[IPv4Network | IPv6Network] = env.networks("METRICS_ALLOWED_NETWORKS", "127.0.0.0/8,::1")
# The port at which a worker serves its own metrics. 0 disables that server.
METRICS_PORT = env.int("METRICS_PORT", 0, validate=_FROM_ZERO)
# Django's debug pages. Never enable them on a server that others can reach.
DEBUG = env.bool("DEBUG", default=False)

_faults: list[str] = []
try:
    env.seal()
except EnvValidationError as error:
    _unread = cast("dict[str, list[str]]", error.error_messages)
    _faults += [f"{name}: {' '.join(messages)}" for name, messages in _unread.items()]
# Neither URL is quoted, because both hold passwords.
if BROKER_URL and not _is_url(BROKER_URL, "redis", "rediss", "amqp", "amqps"):
    _faults.append(
        "BROKER_URL must be redis://:password@host:port/number or amqp://user:password@host:port/name, with rediss or "
        "amqps for TLS, and with %2F for a slash in the password."
    )
elif BROKER_URL and find_spec("celery") is None:
    _faults.append(
        "BROKER_URL needs Celery, the extra `celery`: pip install --no-deps --require-hashes -r requirements/celery.txt"
    )
if _database_url and not (_server := _postgresql(_database_url)):
    _faults.append("DATABASE_URL must be postgresql://user:password@host:port/database.")
elif _database_url and (_unknown := _unknown_options(_server)):
    _faults.append(
        f"DATABASE_URL has options that PostgreSQL's library libpq doesn't know: {', '.join(_unknown)}. Leave them out."
    )
# Neither is quoted: the secret is one, and the URL may hold one.
if OPERATOR_WEBHOOK_URL and not _is_url(OPERATOR_WEBHOOK_URL, "http", "https"):
    _faults.append("OPERATOR_WEBHOOK_URL must be an http or https URL.")
if OPERATOR_WEBHOOK_URL and not _is_webhook_secret(OPERATOR_WEBHOOK_SECRET):
    _faults.append("OPERATOR_WEBHOOK_SECRET must be whsec_ and the base64 of 24 to 64 bytes, if there is a URL.")
if _faults:
    sys.exit("\n".join(_faults))

# --- Settings that follow from these ----------------------------------------------------------------------------------

SECRET_KEY = SECRET_KEY or _generated(STATE_DIR / "secret_key")
API_KEY_SECRET = API_KEY_SECRET or _generated(STATE_DIR / "api_key_secret")

# Maximum number of queries in a user's unfinished batches.
MAX_OPEN_QUERIES = 10 * MAX_QUERIES_PER_BATCH
# Queries, and wei at most, above which the form asks once more before it submits a batch.
CONFIRM_ABOVE_QUERIES, CONFIRM_ABOVE_WEI = 1000, 10**16

VERSION: str = tomllib.loads((BASE_DIR / "pyproject.toml").read_text("utf-8"))["project"]["version"]

_https = BASE_URL.startswith("https:")
# `hostname` would lack the brackets of an IPv6 address.
ALLOWED_HOSTS = [re.sub(r":\d+$", "", urlsplit(BASE_URL).netloc), *_other_hosts]
CSRF_TRUSTED_ORIGINS = [BASE_URL]
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = _https
# A browser accepts a cookie with this prefix only from this host, over https (RFC 6265bis). Over http, browsers share
# cookies between ports, so other programs on this host set and end cookies of the usual names.
_cookie_prefix = "__Host-" if _https else f"bqs-{urlsplit(BASE_URL).port or 80}-"
SESSION_COOKIE_NAME, CSRF_COOKIE_NAME = (f"{_cookie_prefix}{name}" for name in ("sessionid", "csrftoken"))
SECURE_HSTS_SECONDS = _hsts_seconds if _https else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = bool(SECURE_HSTS_SECONDS)
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if _is_behind_tls_proxy else None

DATABASES: dict[str, dict[str, Any]]
if _database_url:
    from psycopg import IsolationLevel

    _server |= {
        "ENGINE": "config.database.postgresql",
        "CONN_MAX_AGE": 0,
        "OPTIONS": {
            "connect_timeout": 10,
            # Transactions run in parallel. Each statement sees what was committed before it began, so a row may change
            # between two statements. A transaction locks rows before its writes depend on them, in the order in
            # `config.database.statements`. The code relies on this isolation level, so it overrides the server's.
            "isolation_level": IsolationLevel.READ_COMMITTED,
            # Each process has a pool. A thread takes a connection for its first query, and returns it at the end of its
            # request or turn. By default a pool that can't connect would try for minutes, with growing pauses.
            "pool": {"min_size": 0, "max_size": 16, "timeout": 20, "reconnect_timeout": 1},
            **_server.get("OPTIONS", {}),
        },
        # `config.database.postgresql` sets these, and the second if it finds a pooler. Transactions wait only for the
        # database. So an idle transaction belongs to a frozen process or a lost machine, and is ended before other
        # transactions reach `lock_timeout`.
        "TIME_LIMITS": {"lock_timeout": "20s", "idle_in_transaction_session_timeout": "5s"},
        "DISABLE_SERVER_SIDE_CURSORS": False,
    }
    DATABASES = {"default": _server}
else:
    DATABASES = {
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            # With mode=rw SQLite makes no new file, because a missing file is an outage. SQLite would treat an empty
            # new file as the database, and delete the write-ahead log beside it, which has the last commits.
            "NAME": f"file:{quote(str((_sqlite_file or STATE_DIR / 'db.sqlite3').absolute()))}?mode=rw",
            # Seconds. Opening a connection takes longer than answering a batch's status. A connection that is kept
            # longer would continue to use a file that was moved away.
            "CONN_MAX_AGE": 1,
            # SQLite has one lock for the whole database and none for rows, so `select_for_update` does nothing. BEGIN
            # IMMEDIATE takes the lock at the beginning of a transaction, which keeps it until its end. So transactions
            # run one after another, and rows don't change while one runs. Without IMMEDIATE, a transaction that reads
            # first would fail at its first write if another has written meanwhile. A statement outside a transaction
            # takes the lock for itself. WAL lets readers continue meanwhile; each sees the database as it was when its
            # read began. FULL makes commits survive a power cut.
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
        # Django's own handlers, for example the one that mails admins, are replaced so that all logs go to the same
        # place.
        "django": {"handlers": [], "propagate": True},
        "django.server": {"handlers": [], "propagate": True},
        # At DEBUG these libraries log URLs of nodes, which may hold a provider's key.
        "urllib3": {"level": "INFO"},
        "web3": {"level": "INFO"},
        # At INFO these write two lines for each message, and most say nothing.
        "celery.worker.strategy": {"level": "WARNING"},
        "celery.app.trace": {"level": "WARNING"},
    },
}

# --- Applications and paths -------------------------------------------------------------------------------------------

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
    # Needed only for its commands.
    "config",
    "accounts",
    "queries",
    "proving",
    "explorer",
    # Needed only for its commands. An attester is a separate process with attesting/settings.py.
    "attesting",
]

MIDDLEWARE = [
    # This comes first, so that the API key is removed from the request before anything can log it.
    "accounts.middleware.ApiKeyMiddleware",
    "config.request_log.RequestMiddleware",
    "queries.api_endpoint.JsonErrorsMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "config.unusual_requests.AnyVersionMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "corsheaders.middleware.CorsMiddleware",
    "config.processor_rate.ProcessorRateMiddleware",
    "config.unusual_requests.UnusualRequestMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "config.drawn_marks.DrawnMarksMiddleware",
    "config.database.retried_reads.RetriedReadsMiddleware",
]

ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
API_PATHS = ApiPaths(
    "/submit-batch-query",
    "/estimate-batch-query",
    "/read-proofs",
    "/find-slots",
    "/batch-query-status",
    "/chain-connections",
    "/webhook-deliveries",
    "/webhook-deliveries/<deliveryId>/send-again",
    "/batch-queries",
    "/batch-queries/<internalId>",
    "/batch-queries/<internalId>/cancel",
    "/batch-queries/<internalId>/transactions",
    "/facts",
    "/submit-request",
    "/get_queries/<request_id>",
    "/get_actions/<query_id>",
    "/is-alive",
)
# API paths where browsers get a page.
PAGES_OF_API_PATHS = frozenset({"/facts"})
# Paths of the form for a new batch. No other form uses multipart/form-data.
LARGE_FORM_PATHS = frozenset({"/new-batch", "/new-batch/estimate"})
# The API's paths have no trailing slash (docs/specification.md, "Conventions"), and each path must exist only once.
APPEND_SLASH = False
# Maximum bytes of one request. Nothing of a request is written to disk, so larger files in a form are dropped.
DATA_UPLOAD_MAX_MEMORY_SIZE = FILE_UPLOAD_MAX_MEMORY_SIZE = 4 * 1024 * 1024
FILE_UPLOAD_HANDLERS = ["django.core.files.uploadhandler.MemoryFileUploadHandler"]
# The form for a new batch has up to 50 rows of up to 34 fields, 1,713 parts in total. All parts count.
DATA_UPLOAD_MAX_NUMBER_FIELDS = 2000

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,  # the admin needs it
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
AUTHENTICATION_BACKENDS = ["accounts.signed_in.SessionBackend"]
# An address may belong to contract wallets of several chains, and nobody signs in by a name alone.
SILENCED_SYSTEM_CHECKS = ["auth.W004"]
LOGIN_URL = "accounts:sign_in"
LOGIN_REDIRECT_URL = "explorer:dashboard"
SESSION_ENGINE = "accounts.idle_sessions"
SESSION_COOKIE_AGE = 14 * 24 * 3600
# Other programs on this host also use the cookie that Django has for messages.
MESSAGE_STORAGE = "django.contrib.messages.storage.session.SessionStorage"

# A program without the CSRF token gets JSON, like every program.
CSRF_FAILURE_VIEW = "accounts.sign_in_views.csrf_failure"

# --- Security ---------------------------------------------------------------------------------------------------------

# Monitors request these paths directly from the service, without a proxy's TLS.
PROBED_PATHS = frozenset({"/healthz", "/livez", "/readyz", "/metrics"})
SECURE_REDIRECT_EXEMPT = [f"^{path.removeprefix('/')}$" for path in PROBED_PATHS]
# With `no-referrer`, Chromium sends `Origin: null` for plain forms, and the CSRF check would fail.
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

# Any origin may call the API, and nothing else. Programs in browsers send the API key in a header, not as a cookie.
CORS_URLS_REGEX = API_PATHS.regex.removesuffix("$") + "/?$"  # the slash lets browsers read the 404 answer
CORS_ALLOW_ALL_ORIGINS = True
CORS_ALLOW_CREDENTIALS = False
CORS_ALLOW_METHODS = ("GET", "POST", "OPTIONS")
CORS_ALLOW_HEADERS = ("accept", "api-key", "content-type", "idempotency-key", "if-none-match")
CORS_EXPOSE_HEADERS = ("etag", "idempotency-replayed", "retry-after", "x-request-id")

# --- Pages ------------------------------------------------------------------------------------------------------------

# The parts of pages that readers share for half a second. One of them may have a megabyte, and strangers request any
# number of different ones.
CACHES = {
    "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "OPTIONS": {"MAX_ENTRIES": 50}},
}

LANGUAGE_CODE = "en"
USE_I18N = False
USE_TZ = True
TIME_ZONE = "UTC"

STATIC_URL = "static/"
# A container image has the static files of its version in its own folder, separate from its state.
_collected = BASE_DIR / "collected"
STATIC_ROOT = _collected if _collected.is_dir() else STATE_DIR / "static"
STATICFILES_DIRS = [BASE_DIR / "static"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "config.static_files.StaticFilesStorage"},
}
