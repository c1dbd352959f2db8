#!/usr/bin/env python
"""Django's command line with this project's settings."""

import os
import sys

from config import stateless


def main() -> None:
    settings = "config.stateless" if stateless.COMMANDS & set(sys.argv[1:2]) else "config.settings"
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", settings)
    from django.core.management import execute_from_command_line  # noqa: PLC0415 (Django may be missing)

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
