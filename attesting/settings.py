"""The settings of an attester's process.

It shares only the database, the chains and the log settings with the service.
"""

from config.settings import (  # noqa: F401 (Django reads them from this module)
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
PROBED_PATHS = frozenset({"/healthz"})

# Any host name is allowed. Checking the Host header protects sessions and URLs that are built from it. An attester has
# neither, and signs the same public facts for everybody.
ALLOWED_HOSTS = ["*"]

DATA_UPLOAD_MAX_MEMORY_SIZE = 4096
