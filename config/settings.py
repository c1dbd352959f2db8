"""All settings, driven by the environment. The defaults run the whole service on one machine with nothing to install.

`BASE_URL` decides what is secure: with `https` cookies, redirects and HSTS are strict; with `http`, for one's own
machine, they are not, because browsers would refuse to send the cookies at all.
"""

import os
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from csp.constants import NONE, SELF
from django.core.exceptions import ImproperlyConfigured

from config.environment import env_bool, env_int, env_list, env_secret, env_str

BASE_DIR = Path(__file__).resolve().parent.parent

# Where this installation keeps what it makes: the SQLite database and generated secrets.
STATE_DIR = Path(env_str("STATE_DIR", str(BASE_DIR / ".state")))
STATE_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)

DEBUG = env_bool("DEBUG", default=False)
SECRET_KEY = env_secret("SECRET_KEY", STATE_DIR / "secret_key")
# Keys are derived under a secret of their own, so that SECRET_KEY (and with it all sessions) can change without them.
API_KEY_SECRET = env_secret("API_KEY_SECRET", STATE_DIR / "api_key_secret")

# The address that people type. Sign-in messages are bound to it, never to the Host header of a request.
BASE_URL = env_str("BASE_URL", "http://127.0.0.1:8000").rstrip("/")
_base = urlsplit(BASE_URL)
if _base.scheme not in {"http", "https"} or not _base.hostname or _base.path or _base.query:
    raise ImproperlyConfigured(f"BASE_URL must look like https://example.org, not {BASE_URL!r}.")
_https = _base.scheme == "https"
ALLOWED_HOSTS = [_base.hostname, *env_list("ALLOWED_HOSTS")]
CSRF_TRUSTED_ORIGINS = [BASE_URL]

# --- What is installed ------------------------------------------------------------------------------------------------

INSTALLED_APPS = [
    "config.apps.OperatorAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "corsheaders",
    "csp",
    "django_htmx",
    "ninja",
    "accounts",
    "queries",
    "proving",
    "explorer",
    # For its commands; it runs in a process of its own, with settings of its own.
    "attesting",
]

MIDDLEWARE = [
    # First of all: the API key leaves the request before anything could log it.
    "accounts.middleware.ApiKeyMiddleware",
    "queries.api_errors.JsonErrorsMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "corsheaders.middleware.CorsMiddleware",
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
API_PATHS = ("/submit-batch-query", "/batch-query-status", "/chain-connections")
# The API's paths have no trailing slash (docs/specification.md, "Conventions"), and no path may exist twice.
APPEND_SLASH = False

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,  # for the docs page of the API
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

# --- Database ---------------------------------------------------------------------------------------------------------

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": env_str("SQLITE_FILE", str(STATE_DIR / "db.sqlite3")),
        # The web server's and the worker's processes share this file. WAL lets readers go on while one writes; a
        # transaction takes the write lock at its start (IMMEDIATE), because one that upgrades later fails at once
        # instead of waiting. FULL: what was answered or broadcast must survive a power cut too.
        "OPTIONS": {
            # In seconds, for the lock. The web server sets a shorter one: people and programs are told to try again.
            "timeout": env_int("SQLITE_TIMEOUT_SECONDS", 20, minimum=1),
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;",
        },
        # A file, also in tests: a worker in a process of its own must see the same database.
        "TEST": {"NAME": Path(tempfile.gettempdir()) / f"batch-query-service-test-{os.getpid()}.sqlite3"},
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- Chains and proving -----------------------------------------------------------------------------------------------

CHAINS_FILE = Path(env_str("CHAINS_FILE", str(BASE_DIR / "chains.toml")))

# Who may sign in: addresses, or * for anyone. Anyone is the default only where no destination costs real money.
ALLOWED_ADDRESSES = env_list("ALLOWED_ADDRESSES")

# Who may use the admin: addresses. They may also sign in and have keys.
OPERATOR_ADDRESSES = env_list("OPERATOR_ADDRESSES")

# Limits of one request.
MAX_BODY_BYTES = env_int("MAX_BODY_BYTES", 4 * 1024 * 1024, minimum=1024)
MAX_QUERIES_PER_BATCH = env_int("MAX_QUERIES_PER_BATCH", 10_000, minimum=1)
# Per user and minute, in batches, and in accounts, slots and headers: at least one of the largest batches.
MAX_BATCHES_PER_MINUTE = env_int("MAX_BATCHES_PER_MINUTE", 60, minimum=1)
MAX_QUERIES_PER_MINUTE = env_int("MAX_QUERIES_PER_MINUTE", 3 * MAX_QUERIES_PER_BATCH, minimum=MAX_QUERIES_PER_BATCH)
# What one user may have open at a time, and keep stored: with proofs, 10 GB are a hundred of the largest batches.
MAX_OPEN_BATCHES = env_int("MAX_OPEN_BATCHES", 1000, minimum=1)
MAX_OPEN_QUERIES = env_int("MAX_OPEN_QUERIES", 100_000, minimum=1)
MAX_OPEN_BLOCKS = env_int("MAX_OPEN_BLOCKS", 20_000, minimum=1)
MAX_STORED_MEGABYTES = env_int("MAX_STORED_MEGABYTES", 10_000, minimum=1)
MAX_SIGN_INS_PER_MINUTE = env_int("MAX_SIGN_INS_PER_MINUTE", 20, minimum=1)  # nonces per client address
# The header in which a reverse proxy in front of us puts the client's address, such as X-Real-IP. Empty: no proxy.
CLIENT_ADDRESS_HEADER = env_str("CLIENT_ADDRESS_HEADER", "")

# Connections that each web process holds, in all and of one address. All those of a proxy come from its own address.
MAX_CONNECTIONS = env_int("MAX_CONNECTIONS", 500, minimum=1)
MAX_CONNECTIONS_PER_ADDRESS = env_int(
    "MAX_CONNECTIONS_PER_ADDRESS", MAX_CONNECTIONS if CLIENT_ADDRESS_HEADER else 100, minimum=1
)

# Whether everybody may see the list of everybody's batches. A batch's page needs its link either way.
PUBLIC_BATCH_LIST = env_bool("PUBLIC_BATCH_LIST", default=False)
# How often one client address may have a page read a chain, counted by each web process for itself.
MAX_READS_PER_MINUTE = env_int("MAX_READS_PER_MINUTE", 20, minimum=1)

BATCH_DEADLINE_SECONDS = env_int("BATCH_DEADLINE_SECONDS", 24 * 3600, minimum=1)
# How far above the head a block may be for a batch to wait for it, in blocks.
MAX_BLOCKS_AHEAD = env_int("MAX_BLOCKS_AHEAD", 64)
# Gas that one user's batches may cause in any 24 hours on destinations that are not test networks.
DAILY_GAS_BUDGET = env_int("DAILY_GAS_BUDGET", 50_000_000)

# How long a worker may hold a row without a word. A killed worker's rows are taken up after this.
LEASE_SECONDS = env_int("LEASE_SECONDS", 30, minimum=1)

# --- People -----------------------------------------------------------------------------------------------------------

AUTH_USER_MODEL = "accounts.User"
AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.ModelBackend"]
LOGIN_URL = "accounts:sign_in"
SIGN_IN_SECONDS = 10 * 60  # how long a sign-in message may be answered
SESSION_COOKIE_AGE = 14 * 24 * 3600

# Programs that lack the token get JSON, like every other answer to them.
CSRF_FAILURE_VIEW = "accounts.sign_in_views.csrf_failure"

# --- Security ---------------------------------------------------------------------------------------------------------

SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = _https
# What watches the service asks it directly, without the TLS of a proxy before it.
SECURE_REDIRECT_EXEMPT = [r"^healthz$"]
SECURE_HSTS_SECONDS = env_int("HSTS_SECONDS", 365 * 24 * 3600) if _https else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = bool(SECURE_HSTS_SECONDS)
if env_bool("BEHIND_TLS_PROXY", default=False):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
# `no-referrer` would break the CSRF check of plain forms in Chromium, which then sends `Origin: null`.
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"

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

# Programs in browsers send the key in a header, never a cookie: any origin may call the API, and nothing else.
CORS_URLS_REGEX = f"^({'|'.join(API_PATHS)})$"
CORS_ALLOW_ALL_ORIGINS = True
CORS_ALLOW_CREDENTIALS = False
CORS_ALLOW_METHODS = ("GET", "POST", "OPTIONS")
CORS_ALLOW_HEADERS = ("accept", "api-key", "content-type")

DATA_UPLOAD_MAX_MEMORY_SIZE = MAX_BODY_BYTES

# --- Pages ------------------------------------------------------------------------------------------------------------

LANGUAGE_CODE = "en"
USE_I18N = False
USE_TZ = True
TIME_ZONE = "UTC"

STATIC_URL = "static/"
STATIC_ROOT = STATE_DIR / "static"
STATICFILES_DIRS = [
    BASE_DIR / "static",
    # What pages load beside htmx comes from npm's lock file; the folder's content is exactly the package's.
    ("idiomorph", BASE_DIR / "node_modules" / "idiomorph" / "dist"),
]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "config.static_files.StaticFilesStorage"},
}

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
    "root": {"handlers": ["console"], "level": env_str("LOG_LEVEL", "INFO")},
    "loggers": {
        # Django mails admins and logs to its own handler by default; one place for all logs is enough.
        "django": {"handlers": [], "propagate": True},
        "django.server": {"handlers": [], "propagate": True},
        # At DEBUG these log the URLs of nodes, which may hold a provider's key.
        "urllib3": {"level": "INFO"},
        "web3": {"level": "INFO"},
    },
}
