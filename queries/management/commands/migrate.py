"""`manage.py migrate`."""

from django.core.checks import Tags
from django.core.management.commands import migrate


class Command(migrate.Command):
    # What it works on, and what operators set. For the rest, pages and API would have to be loaded.
    requires_system_checks = [Tags.database, Tags.models, "settings"]
