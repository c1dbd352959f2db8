"""A header that a worker is about to keep, by its lease."""

import pytest
from django.core.management import CommandError, call_command

from database import leases
from proving.models import FactsRegistry
from tests.proving.chain_state import HEADER_ACCUMULATED, events, registry


def test_the_command_does_not_take_it_for_kept_where_nobody_has_looked(service):
    lease = leases.claim(FactsRegistry.objects.all(), registry().pk)
    assert lease is not None
    with pytest.raises(CommandError, match="A worker has it"):
        call_command("keep_headers", "--timeout=0")
    lease.release(None)
    call_command("keep_headers")
    assert len(events(service, HEADER_ACCUMULATED)) == 1
