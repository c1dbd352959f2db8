"""What an operator sets, read from the environment, and what follows from it. `config.environment` reads it strictly.

The defaults run the whole service on one machine with nothing to install. Constants are elsewhere: Django's in
config/django_settings.py, each other one in the module that uses it.

`BASE_URL` decides how strict security is. With `https` cookies, redirects and HSTS are strict. With `http`, for one's
own machine, they are not, because browsers would not send the cookies at all.
"""

import os
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from config.django_settings import *  # noqa: F403 (Django reads one module)
from config.django_settings import BASE_DIR
from config.environment import LOG_LEVELS, env_bool, env_choice, env_folder, env_int, env_list, env_secret, env_str

# --- This installation ------------------------------------------------------------------------------------------------

# Where the installation keeps what it makes: the SQLite database, generated secrets, collected static files.
STATE_DIR = env_folder("STATE_DIR", BASE_DIR / ".state")
STATIC_ROOT = STATE_DIR / "static"

DEBUG = env_bool("DEBUG", default=False)
SECRET_KEY = env_secret("SECRET_KEY", STATE_DIR / "secret_key")
# API keys are derived from a secret of their own, so they survive a new SECRET_KEY, which ends all sessions.
API_KEY_SECRET = env_secret("API_KEY_SECRET", STATE_DIR / "api_key_secret")

CHAINS_FILE = Path(env_str("CHAINS_FILE", str(BASE_DIR / "chains.toml")))

# --- Its address ------------------------------------------------------------------------------------------------------

# The address that people type. Sign-in messages are bound to it, never to the Host header of a request.
BASE_URL = env_str("BASE_URL", "http://127.0.0.1:8000").rstrip("/")
_base = urlsplit(BASE_URL)
if _base.scheme not in {"http", "https"} or not _base.hostname or _base.path or _base.query:
    raise ImproperlyConfigured(f"BASE_URL must look like https://example.org, not {BASE_URL!r}.")
_https = _base.scheme == "https"
ALLOWED_HOSTS = [_base.hostname, *env_list("ALLOWED_HOSTS")]
CSRF_TRUSTED_ORIGINS = [BASE_URL]
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = _https
SECURE_HSTS_SECONDS = env_int("HSTS_SECONDS", 365 * 24 * 3600) if _https else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = bool(SECURE_HSTS_SECONDS)
if env_bool("BEHIND_TLS_PROXY", default=False):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
# The header in which a reverse proxy in front of us puts the client's address, such as X-Real-IP. Empty: no proxy.
CLIENT_ADDRESS_HEADER = env_str("CLIENT_ADDRESS_HEADER", "")

# --- Database ---------------------------------------------------------------------------------------------------------

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": env_str("SQLITE_FILE", str(STATE_DIR / "db.sqlite3")),
        # Each thread keeps its connection. `config.connections` closes one whose file is not the database any more.
        "CONN_MAX_AGE": None,
        # How SQLite locks, which the whole service relies on. One lock covers the whole database, and one process holds
        # it at a time; there are no locks of rows, so `select_for_update` does nothing here: it is for databases that
        # have them. Each transaction takes the lock at its beginning (BEGIN IMMEDIATE) and keeps it until its end:
        # transactions run one after another, and what
        # one reads stays true until it ends. Without IMMEDIATE, a transaction that reads first and writes later would
        # fail at once where another has written. A statement outside a transaction takes the lock for itself. WAL lets
        # readers go on meanwhile, each with the database as it was when its reading began. FULL: what was answered or
        # broadcast survives a power cut.
        "OPTIONS": {
            # How long to wait for the lock, in seconds. The web server sets less: clients are told to try again.
            "timeout": env_int("SQLITE_TIMEOUT_SECONDS", 20, minimum=1),
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;",
        },
        # A file in tests as well: a worker in a process of its own must see the same database.
        "TEST": {"NAME": Path(tempfile.gettempdir()) / f"batch-query-service-test-{os.getpid()}.sqlite3"},
    }
}

# --- People -----------------------------------------------------------------------------------------------------------

# Who may sign in: addresses, or * for anyone. Empty means anyone only where no destination costs real money.
ALLOWED_ADDRESSES = env_list("ALLOWED_ADDRESSES")
# Who may use the admin: addresses. They may also sign in and have keys.
OPERATOR_ADDRESSES = env_list("OPERATOR_ADDRESSES")
# Whether everybody may see the list of everybody's batches. A batch's page needs its link either way.
PUBLIC_BATCH_LIST = env_bool("PUBLIC_BATCH_LIST", default=False)

# --- Limits -----------------------------------------------------------------------------------------------------------

# Of one batch. Queries are counted as accounts, slots and headers, here and below.
MAX_BODY_BYTES = DATA_UPLOAD_MAX_MEMORY_SIZE = env_int("MAX_BODY_BYTES", 4 * 1024 * 1024, minimum=1024)
MAX_QUERIES_PER_BATCH = env_int("MAX_QUERIES_PER_BATCH", 10_000, minimum=1)
# Of one user in a minute. The largest batch must fit.
MAX_BATCHES_PER_MINUTE = env_int("MAX_BATCHES_PER_MINUTE", 60, minimum=1)
MAX_QUERIES_PER_MINUTE = env_int("MAX_QUERIES_PER_MINUTE", 3 * MAX_QUERIES_PER_BATCH, minimum=MAX_QUERIES_PER_BATCH)
# What one user may have open at a time.
MAX_OPEN_BATCHES = env_int("MAX_OPEN_BATCHES", 1000, minimum=1)
MAX_OPEN_QUERIES = env_int("MAX_OPEN_QUERIES", 100_000, minimum=1)
MAX_OPEN_BLOCKS = env_int("MAX_OPEN_BLOCKS", 20_000, minimum=1)
# What one user may keep stored, with proofs: 10 GB are a hundred of the largest batches.
MAX_STORED_MEGABYTES = env_int("MAX_STORED_MEGABYTES", 10_000, minimum=1)
# Of one client address in a minute: sign-ins that it starts, and readings of a chain for a page.
MAX_SIGN_INS_PER_MINUTE = env_int("MAX_SIGN_INS_PER_MINUTE", 20, minimum=1)
MAX_READS_PER_MINUTE = env_int("MAX_READS_PER_MINUTE", 20, minimum=1)
# Connections of each web process: in total, and of one address. Behind a proxy all have the proxy's address.
MAX_CONNECTIONS = env_int("MAX_CONNECTIONS", 500, minimum=1)
MAX_CONNECTIONS_PER_ADDRESS = env_int(
    "MAX_CONNECTIONS_PER_ADDRESS", MAX_CONNECTIONS if CLIENT_ADDRESS_HEADER else 100, minimum=1
)

# --- Proving ----------------------------------------------------------------------------------------------------------

# How long a batch may take before it is rejected.
BATCH_DEADLINE_SECONDS = env_int("BATCH_DEADLINE_SECONDS", 24 * 3600, minimum=1)
# How far above the head a block may be for a batch to wait for it, in blocks.
MAX_BLOCKS_AHEAD = env_int("MAX_BLOCKS_AHEAD", 64)
# Gas that one user's batches may cause in any 24 hours on destinations that are not test networks.
DAILY_GAS_BUDGET = env_int("DAILY_GAS_BUDGET", 50_000_000)
# How long a worker may keep a row without renewing its lease. After that, another worker takes it up.
LEASE_SECONDS = env_int("LEASE_SECONDS", 30, minimum=1)

# --- Logs -------------------------------------------------------------------------------------------------------------

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {
        "redact": {"()": "config.logs.RedactKeys"},
        "refusals": {"()": "config.logs.NoTracebackOfRefusals"},
    },
    "formatters": {"line": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "handlers": {
        "console": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["refusals", "redact"]},
    },
    "root": {"handlers": ["console"], "level": env_choice("LOG_LEVEL", "INFO", LOG_LEVELS)},
    "loggers": {
        # By default Django mails admins and has a handler of its own. Here, all logs go to one place.
        "django": {"handlers": [], "propagate": True},
        "django.server": {"handlers": [], "propagate": True},
        # At DEBUG these log URLs of nodes, which may hold a provider's key.
        "urllib3": {"level": "INFO"},
        "web3": {"level": "INFO"},
    },
}
