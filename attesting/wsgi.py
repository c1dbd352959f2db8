"""The WSGI application of an attester, for gunicorn."""

import os

from django.core.wsgi import get_wsgi_application

from config.request_headers import bounded

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "attesting.settings")

application = bounded(get_wsgi_application())

# Decrypting a keystore takes a second, so it is done before the first request.
from attesting.attest import own_account  # noqa: E402 (models need the settings)

own_account()
