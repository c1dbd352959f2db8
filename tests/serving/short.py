"""The web server's own configuration with short deadlines, so that tests see them pass."""

from config import web_server
from config.gunicorn import *  # noqa: F403 (all of it)

web_server.HEADER_SECONDS = 1
web_server.IDLE_SECONDS = 2
web_server.LINGER_SECONDS = 1
web_server.SLOWEST_RATE = 8 * 1024 * 1024
