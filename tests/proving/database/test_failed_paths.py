"""How often a connection's path was sent in vain, by its stored transactions."""

import pytest

from proving import failures
from proving.models import FailureCause, Signer
from proving.registries.deployments import Deployment, Registry
from tests.explorer import batches
from tests.users import SIGNER

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("causes", "count"),
    [
        ([FailureCause.OUTDATED] * 16, 0),
        ([FailureCause.OUTDATED] * 17, 17),
        ([*[FailureCause.OUTDATED] * 3, FailureCause.REVERTED], 1),
    ],
)
def test_a_path_that_reverted_after_reorgs_is_sent_again_until_there_were_many(causes, count):
    row = batches.deployed()
    signer = Signer.objects.create(chain_id=31337, address=SIGNER)
    for nonce, cause in enumerate(causes):
        signer.transactions.create(nonce=nonce, data=b"", gas_limit=1, extends=row, succeeded=False, failure=cause)
    tries = failures.of_path(Deployment(row.pk, Registry(row.address), row.block_hash_source, row.multicall))
    assert (tries.count, tries.is_over) == (count, count > 3)
