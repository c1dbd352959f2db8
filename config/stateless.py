"""The settings of commands that need no installation: no folder, secret, database or chains file.

`manage.py` uses them for the commands in `COMMANDS`, which only read and write the files in their arguments. A database
query would fail.
"""

import secrets

COMMANDS = {"make_keystore"}

INSTALLED_APPS = ["attesting"]
DATABASES: dict[str, object] = {}
SECRET_KEY = secrets.token_urlsafe()  # Django requires a key, but nothing is signed with it
TIME_ZONE = "UTC"
USE_I18N = False
USE_TZ = True
