"""The page of addresses lists what this version would deploy."""

import io
from pathlib import Path

from django.core.management import call_command

PAGES = Path(__file__).resolve().parents[3] / "docs/operating"


def test_the_page_of_addresses_is_what_the_command_prints(settings, db):
    settings.CHAINS_FILE = PAGES / "known-networks.toml"
    table = io.StringIO()
    call_command("addresses", stdout=table)
    assert (PAGES / "known-addresses.txt").read_text() == table.getvalue()
