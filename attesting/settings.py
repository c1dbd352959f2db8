"""The settings of an attester's process: the service's database, chains and logs, and nothing else of it."""

from config.settings import (  # noqa: F401 (Django reads them here)
    BASE_DIR,
    CHAINS_FILE,
    CLIENT_ADDRESS_HEADER,
    DATABASES,
    DEFAULT_AUTO_FIELD,
    LOGGING,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_ADDRESS,
    SECRET_KEY,
    STATE_DIR,
    TIME_ZONE,
    USE_I18N,
    USE_TZ,
)

INSTALLED_APPS = ["attesting"]
ROOT_URLCONF = "attesting.urls"
API_PATHS = ("/attest", "/healthz")

# Any name may be in a request's Host header. Checking it protects what is built from it, or is for certain origins
# only; here no answer has an address of ours in it, there are no sessions, and what is signed is public truth, the
# same for everybody. A wrong guess of the names by which others reach us would only keep it from them.
ALLOWED_HOSTS = ["*"]

DATA_UPLOAD_MAX_MEMORY_SIZE = 4096
