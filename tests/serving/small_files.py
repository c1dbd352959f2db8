"""The web server's own configuration, on a system where a file may have 4 MB: more finds no room."""

import resource

from config.gunicorn import *  # noqa: F403 (all of it)

resource.setrlimit(resource.RLIMIT_FSIZE, (4 * 1024 * 1024, resource.RLIM_INFINITY))
