"""Settings, URLs, logs, metrics and the database's helpers of the service."""

import sys
from pathlib import Path

# The form reads files as `bqs` does, by a module of the client that needs no package. A production environment doesn't
# have the client installed.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "client" / "src"))
