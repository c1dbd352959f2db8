"""The WSGI application, for gunicorn."""

import gc
import os
import sys

import siwe  # type: ignore[import-untyped]  # noqa: F401 (loaded here, because accounts.sign_in would load it during a request)
from django.core.wsgi import get_wsgi_application
from django.db import connection

import chains.ens  # noqa: F401 (loaded here, because queries.batch_request would load it during a request)
from config import static_files
from config.processor_rate import limited
from config.request_headers import bounded

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

application = limited(bounded(get_wsgi_application()))
# The web server finds its files when it starts, and no later.
static_files.problem()

# Seconds for which a thread waits for another that computes, after each of its statements. With Python's 5 ms, a page
# of dozens of statements takes several times as long while another is made.
sys.setswitchinterval(0.0005)

# A request waits at most 5 s for a lock or a connection; then the client is asked to try again. A statement ends after
# 10 s, so that a search doesn't delay others. Workers and migrations have no such limits.
_options = connection.settings_dict["OPTIONS"]
if connection.vendor == "postgresql":
    connection.settings_dict["TIME_LIMITS"] |= {"lock_timeout": "5s", "statement_timeout": "10s"}
    _options["pool"]["timeout"] = 5
else:
    _options["timeout"] = 5

# Garbage is searched for among newer objects only. A search of all that stays loaded takes longer than most pages.
gc.freeze()
