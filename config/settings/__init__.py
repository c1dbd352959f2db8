"""What an operator sets, read from the environment, and what follows from it. `config.environment` reads it strictly.

Each module is about one subject, and Django reads all of their names here. The defaults run the whole service on one
machine with nothing to install. Constants are elsewhere: Django's in config/django_settings.py, each other one in the
module that uses it.
"""

from config.django_settings import *
from config.settings.access import *
from config.settings.batch_and_user_limits import *
from config.settings.broker import *
from config.settings.database import *
from config.settings.deadlines_and_leases import *
from config.settings.logs_and_debugging import *
from config.settings.metrics import *
from config.settings.retention import *
from config.settings.state_and_secrets import *
from config.settings.web_address import *
from config.settings.webhook_receivers import *
