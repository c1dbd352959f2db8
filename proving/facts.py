"""What was proven of accounts, and what the facts registry says of it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from chains.rpc import Block as BlockName
from chains.rpc import InvalidReply, Reverted, RpcClient
from proving.models import AccountProof
from proving.registry import Registry
from queries.models import AccountField

# An account's fact, by (EIP-55 address, field).
Fact = tuple[str, AccountField]


def words(proof: AccountProof) -> dict[AccountField, bytes]:
    """The 32-byte word that the registry must answer for each field."""
    return {
        AccountField.NONCE: proof.nonce.to_bytes(32),
        AccountField.BALANCE: proof.balance.to_bytes(32),
        AccountField.STORAGE_ROOT: bytes.fromhex(proof.storage_root[2:]),
        AccountField.CODE_HASH: bytes.fromhex(proof.code_hash[2:]),
    }


@dataclass(frozen=True)
class RegistryView:
    """What the registry holds about one source block, as of one destination block."""

    state_root: bytes  # zero bytes: the header is not accumulated
    facts: Mapping[Fact, bytes | None]  # None: not proven


def read(
    rpc: RpcClient, registry: Registry, block_number: int, facts: Iterable[Fact], *, at: BlockName
) -> RegistryView:
    """Ask the registry for the header and the facts. Raises `NodeUnavailable`, also when no registry answers."""
    wanted = list(dict.fromkeys(facts))
    calls = [registry.state_root(block_number)]
    calls += [registry.field(address, block_number, field) for address, field in wanted]
    answers = rpc.eth_calls(calls, at)
    if any(isinstance(answer, Reverted) or not answer for answer in answers):
        raise InvalidReply(f"There is no facts registry at {registry.address} as of block {at!r}.")
    root, *rest = [answer for answer in answers if isinstance(answer, bytes)]
    return RegistryView(root, {fact: registry.decode_field(answer) for fact, answer in zip(wanted, rest, strict=True)})
