"""The WSGI application, for gunicorn."""

import os

import siwe  # type: ignore[import-untyped]  # noqa: F401 (accounts.sign_in would import it within a request)
from django.core.wsgi import get_wsgi_application

import chains.ens  # noqa: F401 (queries.account_names would import it within a request)
from config import database_connections

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

application = get_wsgi_application()
database_connections.watch()
