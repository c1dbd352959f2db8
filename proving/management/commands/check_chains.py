"""`manage.py check_chains`."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error as DatabaseError


class Command(BaseCommand):
    help = "Checks every node and attester, ENS, signers and registries. Ends with exit code 1 if something is wrong."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--node",
            metavar="URL",
            help="check only this node, without chains.toml; '${NAME}' stands for a variable of the environment",
        )

    def handle(self, *, node: str | None, **_: Any) -> None:
        # The import is slow, and `--help` doesn't need it.
        from proving.health import installation_check  # noqa: PLC0415

        try:
            if node is None:
                problems = installation_check.check(self.stdout.write)
            else:
                problems = installation_check.check_node(node, self.stdout.write)
        except ValueError as error:  # includes ChainsError
            raise CommandError(str(error)) from None
        except DatabaseError as error:
            raise CommandError(f"storage: What was seen can't be stored: {error}".strip()) from None
        if problems:
            raise CommandError("\n".join(f"{problem.kind}: {problem.sentence}" for problem in problems))
