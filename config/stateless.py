"""The settings of commands that need no installation: no folder, no secret, no database and no chains file.

`manage.py` uses them for the commands of `COMMANDS`, which read and write the files that are named to them, and nothing
else. A query fails here, because there is no database.
"""

import secrets

COMMANDS = {"make_keystore"}

INSTALLED_APPS = ["attesting"]
DATABASES: dict[str, object] = {}
SECRET_KEY = secrets.token_urlsafe()  # Django wants one; nothing is signed with it.
TIME_ZONE = "UTC"
USE_I18N = False
USE_TZ = True
