"""The page of addresses lists what this version would deploy."""

import io

from django.core.management import call_command

from devnet.devchain import PROJECT


def test_the_page_of_addresses_is_what_the_command_prints(settings, db):
    settings.CHAINS_FILE = PROJECT / "deploy/known-networks.toml"
    table = io.StringIO()
    call_command("addresses", stdout=table)
    assert (PROJECT / "deploy/known-addresses.txt").read_text() == table.getvalue()
