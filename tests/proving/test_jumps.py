from collections.abc import Iterator

import pytest

from devnet.devchain import DevChain
from queries.models import BatchStatus, Block
from queries.properties import AccountField
from tests.proving.chain_state import balance_at, field_on_chain
from tests.proving.jumping import Jumping, Pointing, World, beacon_chain_of, jumping
from tests.proving.sources import THERE, grow
from tests.service import CHARLIE, asking, balances, submit, work_until_done

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def there() -> Iterator[DevChain]:
    with DevChain(chain_id=THERE) as chain:
        grow(chain, 60)
        yield chain


@pytest.fixture(scope="module")
def made(there) -> tuple[Pointing, World]:
    return beacon_chain_of(there)


@pytest.fixture
def service(chain, made, settings, tmp_path, db) -> Iterator[Jumping]:
    with jumping(chain, made, settings, tmp_path) as jump:
        yield jump


def of_there(*numbers: int):
    return asking(balances(numbers, CHARLIE), source=THERE)


def test_a_block_is_proven_by_a_jump_in_its_own_transaction(service, there, key):
    service.tell(service.head - 1)
    batch = submit(key, of_there(10))
    assert work_until_done(batch, service.here).status == BatchStatus.DONE
    assert field_on_chain(service.here, CHARLIE, 10, AccountField.BALANCE, source=THERE) == balance_at(
        there, CHARLIE, 10
    )
    row = Block.objects.get(number=10)
    assert (row.path_unit, row.path_length, row.path_left) == ("jumps", 1, 0)
