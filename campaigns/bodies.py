"""Bodies of submissions."""

from collections.abc import Iterable
from typing import Any

from demo.installation import CHAIN_ID
from devnet.devchain import ACCOUNTS


def balances(
    blocks: Iterable[int], accounts: Iterable[str] = (ACCOUNTS[0][0],), *, fee: int | str = 0, chain_id: int = CHAIN_ID
) -> dict[str, Any]:
    """Return a body that asks a chain about itself: the balances of these accounts at each of these blocks."""
    named = {"accounts": {account: {"props": ["BALANCE"]} for account in accounts}}
    data = {str(chain_id): {f"block:{number}": named for number in blocks}}
    return {"destinationChainId": str(chain_id), "fee": str(fee), "data": data}
