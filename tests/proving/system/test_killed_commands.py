"""Commands of `manage.py` as processes that are killed."""

import signal

import pytest

from devnet.devchain import DevChain
from proving.models import FactsRegistry, Transaction
from queries.models import Batch, BatchStatus
from tests import chain_fixtures, deployed, factories, users
from tests.service import chains_toml, fresh, request, submit

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.outside]


# A chain that mines a block every half second, of which none becomes final.
chain = chain_fixtures.chain_fixture(
    lambda chain: chain.mine(5), scope="function", block_seconds=0.5, slots_in_an_epoch=1000
)


@pytest.mark.long
def test_if_the_command_is_killed_while_it_waits_workers_go_on_with_the_old_registry(
    chain: DevChain, settings, tmp_path, start_command, start_worker
):
    def done(batch: Batch) -> bool:
        return bool(fresh(batch).status == BatchStatus.DONE)

    settings.CHAINS_FILE = chains_toml(tmp_path, chain.url)
    deployed.deploy()
    old, key = deployed.use_earlier_registry(chain), users.a_key()
    first = submit(key, request(users.ALICE, block=chain.head()))
    start_worker()
    factories.until(lambda: done(first), "the first batch")
    command = start_command("deploy_registry", "31337", "31337", "--replace")
    (log,) = tmp_path.glob("deploy_registry*.log")
    factories.until(lambda: "The old registry's last facts are in block" in log.read_text(), "the wait")
    before, sent = FactsRegistry.objects.values().get(), Transaction.objects.count()
    second = submit(key, request(users.BOB, block=chain.head()))
    factories.until(lambda: fresh(second).status == BatchStatus.ACCEPTED, "its admission")
    assert command.poll() is None
    assert Transaction.objects.count() == sent

    command.send_signal(signal.SIGKILL)
    command.wait()
    factories.until(lambda: done(second), "the second batch")
    after = FactsRegistry.objects.values().get()
    assert (after["address"], after["replaced_at"]) == (old.address, None)
    assert {**after, "due_at": None} == {**before, "due_at": None}
    assert set(second.queries.values_list("transactions__to", flat=True)) == {old.address}
