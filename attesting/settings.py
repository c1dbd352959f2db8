"""The settings of an attester's process. It shares only the database, the chains and the logs with the service."""

from config.settings import (  # noqa: F401 (Django reads them here)
    BASE_DIR,
    CHAINS_FILE,
    DATABASES,
    DEFAULT_AUTO_FIELD,
    LOGGING,
    SECRET_KEY,
    STATE_DIR,
    TIME_ZONE,
    USE_I18N,
    USE_TZ,
)

INSTALLED_APPS = ["attesting"]
MIDDLEWARE = ["config.request_log.RequestMiddleware", "django.middleware.common.CommonMiddleware"]
ROOT_URLCONF = "attesting.urls"
API_PATHS = ("/attest", "/healthz")

# Any name may be in a request's Host header. Checking the header would protect addresses that are built from it, and
# sessions. An attester has neither, and signs public facts, the same for everybody. The check could only keep away
# those who reach it by a name that its operator forgot to list.
ALLOWED_HOSTS = ["*"]

DATA_UPLOAD_MAX_MEMORY_SIZE = 4096
