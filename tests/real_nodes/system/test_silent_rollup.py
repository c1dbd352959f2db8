"""The service on a real rollup that publishes no batches, so that no block after its first one is final."""

import io
import re

import pytest
from django.core.management import call_command
from django.test import Client

from tests import service
from tests.deployed import deploy
from tests.explorer.batches import beat, page
from tests.explorer.pages import text_of
from tests.real_nodes.rollup import L2, Rollup, connect, rollup

pytestmark = [pytest.mark.op_stack, pytest.mark.outside, pytest.mark.django_db]

HOUR, SECONDS = 3600, 10


class Impatient(io.StringIO):
    """The output of a command that an operator interrupts as soon as it names a final block."""

    def write(self, text: str) -> int:
        super().write(text)
        if "newest final block" in text:
            raise KeyboardInterrupt
        return len(text)


def test_a_rollup_without_batches_is_named_with_its_first_and_its_newest_block(key, settings, tmp_path):
    with rollup(age=HOUR + 60, block_seconds=SECONDS, has_batcher=False) as silent:
        connect(settings, tmp_path, silent)
        service.reconfigure(settings, "block_seconds = 1\n", f"block_seconds = {SECONDS}\n")
        service.reconfigure(settings, "confirmations = 1", 'confirmations = "finalized"')
        silent.wait_for_block(HOUR // SECONDS)
        first = silent.number("latest")

        output = Impatient()
        with pytest.raises(KeyboardInterrupt):
            call_command("deploy_registry", str(L2), str(L2), stderr=output)
        _assert_named(output.getvalue(), silent, first)
        service.reconfigure(settings, 'confirmations = "finalized"', "confirmations = 1")
        deploy(L2, L2)

        service.reconfigure(settings, "confirmations = 1", 'confirmations = "finalized"')
        body = service.asking(service.balances([silent.number("latest")]), source=L2, destination=L2)
        batch = service.submit(key, body)
        service.work()
        beat()
        status = Client().get("/batch-query-status", {"batchQueryId": batch.pk}, headers=service.header(key))
        for told in (*status.json()["info"], text_of(page(batch))):
            _assert_named(told, silent, first)
        # Rollups that publish every few hours are no notice.
        assert Client().get("/healthz").json()["notices"] == []


def _assert_named(text: str, rollup: Rollup, first: int) -> None:
    """Require that the text names the first block as the final one, and a newest block since the `first`."""
    found = re.search(r"newest final block of .{,30} is 0, (\d+) minutes older than its newest block, (\d+)\.", text)
    assert found, text
    older, newest = map(int, found.groups())
    assert first <= newest <= rollup.number("latest")
    assert older == round(newest * SECONDS / 60)
