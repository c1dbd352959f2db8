"""The WSGI application, for gunicorn."""

import os

import siwe  # type: ignore[import-untyped]  # noqa: F401 (accounts.sign_in would import it within a request)
from django.core.wsgi import get_wsgi_application
from django.db import connection

import chains.ens  # noqa: F401 (queries.batch_request would import it within a request)

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

application = get_wsgi_application()

# A client whose request has waited for a lock or a connection for 5 s is told to try again. And no search may keep the
# database from others: workers and migrations take as long as they need.
_options = connection.settings_dict["OPTIONS"]
if connection.vendor == "postgresql":
    _options["options"] += " -c lock_timeout=5s -c statement_timeout=10s"
    _options["pool"]["timeout"] = 5
else:
    _options["timeout"] = 5
