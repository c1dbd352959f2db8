"""The web server's own configuration, with room for few answers that aren't read and bodies that aren't complete."""

from config import web_server
from config.gunicorn import *  # noqa: F403 (all of it)
from tests.serving.app import LARGE

# For one client two of the application's large answers, for all three.
web_server.MOST_KEPT_FOR_CLIENT = 2 * len(LARGE) + 2**20
web_server.MOST_KEPT = 3 * len(LARGE) + 2**20
