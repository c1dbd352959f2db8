"""The WSGI application of an attester, for gunicorn."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "attesting.settings")

application = get_wsgi_application()

# Decrypting a keystore takes a second, so it is done before the first request.
from attesting.attest import own_account  # noqa: E402 (models need the settings)

own_account()
