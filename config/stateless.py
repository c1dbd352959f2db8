"""The settings of commands that need no installation: no folder, no secret, no database and no chains file.

`manage.py` uses them for the commands in `COMMANDS`, which only read and write the files in their arguments. A query to
a database would fail.
"""

import secrets

COMMANDS = {"make_keystore"}

INSTALLED_APPS = ["attesting"]
DATABASES: dict[str, object] = {}
SECRET_KEY = secrets.token_urlsafe()  # Django needs one, but nothing is signed with it.
TIME_ZONE = "UTC"
USE_I18N = False
USE_TZ = True
