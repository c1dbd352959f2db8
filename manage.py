#!/usr/bin/env python
"""Django's command line, with this project's settings."""

import os
import sys

from config import stateless


def main() -> None:
    settings = "config.stateless" if stateless.COMMANDS & set(sys.argv[1:2]) else "config.settings"
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", settings)
    from django.core.management import execute_from_command_line  # noqa: PLC0415 (Django may be missing)

    from config.environment import require_settings  # noqa: PLC0415 (same)

    require_settings()
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
