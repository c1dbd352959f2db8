"""As short.py, with a rate at which tests can send."""

from config import web_server
from tests.serving.short import *  # noqa: F403 (all of it)

web_server.SLOWEST_RATE = 4 * 1024
