"""The web server's own configuration, on a system that lets it open few files unless it asks for more."""

import resource

from config.gunicorn import *  # noqa: F403 (all of it)

resource.setrlimit(resource.RLIMIT_NOFILE, (160, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
