"""Old blocks: reached by hops through the history of block hashes, or by walking headers where there is none."""

from pathlib import Path

import pytest

from chains.devchain import DevChain
from config.chains import forget_chains
from proving.deployment import deploy
from proving.models import Transaction
from queries.models import AccountField, Batch, BatchStatus, Block, Query, StepKind
from tests.proving.chain_state import balance_at, field_on_chain
from tests.service import CHARLIE, a_key, chains_toml, request, submit, work_until_done

WINDOW = 10


@pytest.fixture
def key(db):
    return a_key()


@pytest.fixture
def old(chain: DevChain, db, settings, tmp_path) -> DevChain:
    """The service with windows of 10 blocks, on a chain of 60 in which balances change."""
    connect(chain, settings, tmp_path)
    deploy(31337, 31337)
    grow(chain, 50)
    return chain


def connect(chain: DevChain, settings, folder: Path, more: str = "") -> None:
    settings.CHAINS_FILE = chains_toml(folder, chain.url, connection=f"window = {WINDOW}\n{more}")
    forget_chains()


def grow(chain: DevChain, blocks: int) -> None:
    for number in range(5):
        chain.rpc("anvil_setBalance", CHARLIE, hex(10**18 + number))
        chain.mine(blocks // 5)


def extending() -> list[Transaction]:
    return list(Transaction.objects.exclude(extends=None).order_by("pk"))


def proven(chain: DevChain, batch: Batch, address: str, block: int) -> int:
    """The balance that the registry holds, after the work is done."""
    assert work_until_done(batch, chain, rounds=30).status == BatchStatus.DONE
    value = field_on_chain(chain, address, block, AccountField.BALANCE)
    assert value == balance_at(chain, address, block)
    return value


# --- Hops -------------------------------------------------------------------------------------------------------------


def test_a_block_three_windows_back_is_proven_by_hops(old, key):
    block = old.head() - 3 * WINDOW - 5
    batch = submit(key, request(CHARLIE, block=block))
    proven(old, batch, CHARLIE, block)
    (tx,) = extending()
    assert tx.succeeded
    # It was shown on the step that it serves.
    step = Query.objects.get(batch=batch).steps.get(kind=StepKind.HEADER_ACCUMULATED)
    assert step.status == "COMPLETED"
    row = Block.objects.get(number=block)
    assert (row.way_unit, row.way_length, row.way_left) == ("hops", 3, 0)
