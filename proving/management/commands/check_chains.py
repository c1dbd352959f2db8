"""`manage.py check_chains`."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError


class Command(BaseCommand):
    help = (
        "Asks every node and attester and for ENS, looks at signers and registries; ends with 1 if something is wrong."
    )

    def handle(self, **_: Any) -> None:
        # `--help` would wait for them.
        from chains.chains_file import ChainsError  # noqa: PLC0415
        from proving.health import installation_check  # noqa: PLC0415

        try:
            problems = installation_check.check(self.stdout.write)
        except ChainsError as error:
            raise CommandError(str(error)) from None
        if problems:
            raise CommandError("\n".join(f"{code}: {sentence}" for code, sentence in problems))
