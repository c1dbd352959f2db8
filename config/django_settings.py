"""What Django needs to know and no operator changes: the same in every installation.

What operators set is in config/settings/, which Django reads; it takes over all names of this module.
"""

from pathlib import Path

from csp.constants import NONE, SELF

from config.api_paths import ApiPaths

BASE_DIR = Path(__file__).resolve().parent.parent

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
AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.ModelBackend"]
LOGIN_URL = "accounts:sign_in"
LOGIN_REDIRECT_URL = "explorer:dashboard"
SESSION_COOKIE_AGE = 14 * 24 * 3600

# Programs that lack the token get JSON, like every other answer to them.
CSRF_FAILURE_VIEW = "accounts.sign_in_views.csrf_failure"

# --- Security ---------------------------------------------------------------------------------------------------------

# Monitors ask the service directly, without the TLS of a proxy before it.
SECURE_REDIRECT_EXEMPT = [r"^(healthz|livez|readyz|metrics)$"]
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
STATICFILES_DIRS = [BASE_DIR / "static"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "config.static_files.StaticFilesStorage"},
}
