"""Where the installation keeps what it makes, its secrets, and the file of its chains."""

from pathlib import Path

from config.django_settings import BASE_DIR
from config.environment import env_folder, env_secret, env_str

# Where the installation keeps what it makes: the SQLite database, generated secrets, collected static files.
STATE_DIR = env_folder("STATE_DIR", BASE_DIR / ".state")
# An image has the static files of its version, and its state is elsewhere.
STATIC_ROOT = Path(env_str("STATIC_DIR", str(STATE_DIR / "static")))

SECRET_KEY = env_secret("SECRET_KEY", STATE_DIR / "secret_key")
# API keys are derived from a secret of their own, so they survive a new SECRET_KEY, which ends all sessions.
API_KEY_SECRET = env_secret("API_KEY_SECRET", STATE_DIR / "api_key_secret")

CHAINS_FILE = Path(env_str("CHAINS_FILE", str(BASE_DIR / "chains.toml")))
