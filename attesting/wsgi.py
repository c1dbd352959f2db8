"""The WSGI application of an attester, for gunicorn."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "attesting.settings")

application = get_wsgi_application()
