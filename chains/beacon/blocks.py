"""Beacon blocks as clients send them (SSZ), and the branch from a block's root to an execution block.

Layouts of Bellatrix to Gloas: Ethereum consensus specifications, `specs/*/beacon-chain.md` and `presets/`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from chains.beacon import ssz
from chains.beacon.ssz import BitList, ByteList, Bytes, Container, List, Type

# Indexes of fields in a body and in a payload (contracts/src/GloasBeaconHistory.sol has them too).
EXECUTION_PAYLOAD, BLOCK_HASH = 9, 12
BODY_DEPTH = 4


class Layout(IntEnum):
    """The layout of blocks since a fork. Fulu's blocks have Electra's layout."""

    BELLATRIX = 0
    CAPELLA = 1
    DENEB = 2
    ELECTRA = 3
    GLOAS = 4

    @property
    def path(self) -> Sequence[str]:
        """Return the names of the fields that lead from a block's body to the hash of the execution block.

        Since Gloas a block has no payload, only a promise of one, which nobody need keep. It names the last payload
        before it, which was revealed.
        """
        if self >= Layout.GLOAS:
            return "signed_execution_payload_bid", "message", "parent_block_hash"
        return "execution_payload", "block_hash"


@dataclass(frozen=True)
class Preset:
    """Sizes in a block that differ between networks."""

    committees: int
    """Maximum number of committees in a slot."""
    sync_committee: int
    """Number of its validators, a multiple of 8."""
    withdrawals: int
    """Maximum number of withdrawals in a block."""
    payload_committee: int
    """Number of validators who attest whether a payload was revealed, a multiple of 8."""


MAINNET_PRESET = Preset(committees=64, sync_committee=512, withdrawals=16, payload_committee=512)
MINIMAL_PRESET = Preset(committees=4, sync_committee=32, withdrawals=4, payload_committee=16)


@dataclass(frozen=True)
class BeaconHeader:
    """A beacon block's header. Its hash tree root is the block's root."""

    slot: int
    proposer: int
    parent_root: bytes
    state_root: bytes
    body_root: bytes

    @property
    def leaves(self) -> Sequence[bytes]:
        integers = (ssz.integer_leaf(self.slot), ssz.integer_leaf(self.proposer))
        return *integers, self.parent_root, self.state_root, self.body_root

    @property
    def root(self) -> bytes:
        return ssz.tree_root(self.leaves, 3)


@dataclass(frozen=True)
class ExecutionBranch:
    """A beacon block, the hash of an execution block, and the branch from that hash to the root of the block's body.

    It is the block's own execution block. Since Gloas it is the last one before.
    """

    header: BeaconHeader
    block_hash: bytes
    branch: Sequence[bytes]


def slot_of(encoded: bytes) -> int:
    """Return the slot of an encoded `SignedBeaconBlock`, which stands at the same place in every layout."""
    # An offset and a signature come before the block.
    return int.from_bytes(encoded[100:108], "little")


def execution_branch(
    encoded: bytes, layout: Layout, *, signed: bool = True, preset: Preset = MAINNET_PRESET
) -> ExecutionBranch:
    """Return the branch in an encoded `SignedBeaconBlock`, or in a `BeaconBlock`. Raises `InvalidSsz`."""
    if signed:
        encoded = Container({"message": ByteList(2**32), "signature": Bytes(96)}).parts(encoded)["message"]
    parts = _HEADER.parts(encoded)
    slot, proposer = (int.from_bytes(parts[name], "little") for name in ("slot", "proposer_index"))
    kind: Type = body_of(layout, preset)
    part, roots, branch = parts["body"], list[bytes](), list[bytes]()
    for name in layout.path:
        assert isinstance(kind, Container)
        root, siblings = kind.branch(part, name)
        roots.append(root)
        branch[:0] = siblings
        part = kind.parts(part)[name]
        kind = kind.fields[name]
    header = BeaconHeader(slot, proposer, parts["parent_root"], parts["state_root"], roots[0])
    return ExecutionBranch(header, part, branch)


_UINT64, _ROOT, _ADDRESS, _PUBLIC_KEY, _SIGNATURE = Bytes(8), Bytes(32), Bytes(20), Bytes(48), Bytes(96)

_HEADER_FIELDS: Mapping[str, Type] = {
    "slot": _UINT64,
    "proposer_index": _UINT64,
    "parent_root": _ROOT,
    "state_root": _ROOT,
}
_HEADER = Container({**_HEADER_FIELDS, "body": ByteList(2**32)})


def _signed(**message: Type) -> Container:
    return Container({"message": Container(message), "signature": _SIGNATURE})


_BLOCK_HEADER = _signed(**_HEADER_FIELDS, body_root=_ROOT)
_CHECKPOINT = Container({"epoch": _UINT64, "root": _ROOT})
_ATTESTATION_DATA = Container(
    {
        "slot": _UINT64,
        "index": _UINT64,
        "beacon_block_root": _ROOT,
        "source": _CHECKPOINT,
        "target": _CHECKPOINT,
    }
)
_DEPOSIT_DATA: Mapping[str, Type] = {
    "pubkey": _PUBLIC_KEY,
    "withdrawal_credentials": _ROOT,
    "amount": _UINT64,
    "signature": _SIGNATURE,
}
_DEPOSIT = Container({"proof": Bytes(33 * 32), "data": Container(_DEPOSIT_DATA)})
_WITHDRAWAL = Container({"index": _UINT64, "validator_index": _UINT64, "address": _ADDRESS, "amount": _UINT64})
_BLOB_COMMITMENT = Bytes(48)
# The requests of a block to the beacon chain, and their maximum number before Gloas.
_REQUESTS: Mapping[str, tuple[Container, int]] = {
    "deposits": (Container({**_DEPOSIT_DATA, "index": _UINT64}), 8192),
    "withdrawals": (Container({"source_address": _ADDRESS, "validator_pubkey": _PUBLIC_KEY, "amount": _UINT64}), 16),
    "consolidations": (
        Container({"source_address": _ADDRESS, "source_pubkey": _PUBLIC_KEY, "target_pubkey": _PUBLIC_KEY}),
        2,
    ),
}
_REQUESTS_OF_BUILDERS: Mapping[str, Container] = {
    "builder_deposits": Container(_DEPOSIT_DATA),
    "builder_exits": Container({"source_address": _ADDRESS, "pubkey": _PUBLIC_KEY}),
}
_BID_FIELDS: Mapping[str, Type] = {
    "parent_block_hash": _ROOT,
    "parent_block_root": _ROOT,
    "block_hash": _ROOT,
    "prev_randao": _ROOT,
    "fee_recipient": _ADDRESS,
    "gas_limit": _UINT64,
    "builder_index": _UINT64,
    "slot": _UINT64,
    "value": _UINT64,
    "execution_payment": _UINT64,
    "blob_kzg_commitments": List(_BLOB_COMMITMENT, None),
    "execution_requests_root": _ROOT,
}
_PAYLOAD_ATTESTATION_DATA = Container(
    {
        "beacon_block_root": _ROOT,
        "slot": _UINT64,
        "payload_present": Bytes(1),
        "blob_data_available": Bytes(1),
    }
)


def _payload_of(layout: Layout, preset: Preset) -> Container:
    fields: dict[str, Type] = {
        "parent_hash": _ROOT,
        "fee_recipient": _ADDRESS,
        "state_root": _ROOT,
        "receipts_root": _ROOT,
        "logs_bloom": Bytes(256),
        "prev_randao": _ROOT,
        "block_number": _UINT64,
        "gas_limit": _UINT64,
        "gas_used": _UINT64,
        "timestamp": _UINT64,
        "extra_data": ByteList(32),
        "base_fee_per_gas": Bytes(32),
        "block_hash": _ROOT,
        "transactions": List(ByteList(2**30), 2**20),
    }
    if layout >= Layout.CAPELLA:
        fields["withdrawals"] = List(_WITHDRAWAL, preset.withdrawals)
    if layout >= Layout.DENEB:
        fields |= {"blob_gas_used": _UINT64, "excess_blob_gas": _UINT64}
    return Container(fields)


def body_of(layout: Layout, preset: Preset = MAINNET_PRESET) -> Container:
    """Return the type of a block's body."""
    electra, gloas = layout >= Layout.ELECTRA, layout >= Layout.GLOAS

    def of(fields: Mapping[str, Type]) -> Container:
        return Container(fields, progressive=gloas)

    def at_most(limit: int) -> int | None:
        return None if gloas else limit

    # Maximum validators that one attestation covers: one committee, or since Electra all committees of a slot.
    attesters = at_most(2048 * preset.committees if electra else 2048)
    signed_data: Mapping[str, Type] = {"data": _ATTESTATION_DATA, "signature": _SIGNATURE}
    attestation: dict[str, Type] = {"aggregation_bits": BitList(attesters), **signed_data}
    if electra:
        attestation["committee_bits"] = Bytes(-(-preset.committees // 8))
    indexed = of({"attesting_indices": List(_UINT64, attesters, packed=True), **signed_data})
    change = _signed(validator_index=_UINT64, from_pubkey=_PUBLIC_KEY, to_address=_ADDRESS)
    changes = List(change, at_most(16))
    requests = {name: List(request, at_most(limit)) for name, (request, limit) in _REQUESTS.items()}
    fields: dict[str, Type] = {
        "randao_reveal": _SIGNATURE,
        "eth1_data": Container({"deposit_root": _ROOT, "deposit_count": _UINT64, "block_hash": _ROOT}),
        "graffiti": _ROOT,
        "proposer_slashings": List(Container({"header_1": _BLOCK_HEADER, "header_2": _BLOCK_HEADER}), at_most(16)),
        "attester_slashings": List(
            Container({"attestation_1": indexed, "attestation_2": indexed}), at_most(1 if electra else 2)
        ),
        "attestations": List(of(attestation), at_most(8 if electra else 128)),
        "deposits": List(_DEPOSIT, at_most(16)),
        "voluntary_exits": List(_signed(epoch=_UINT64, validator_index=_UINT64), at_most(16)),
        "sync_aggregate": Container({"bits": Bytes(preset.sync_committee // 8), "signature": _SIGNATURE}),
    }
    if gloas:
        requests |= {name: List(request, None) for name, request in _REQUESTS_OF_BUILDERS.items()}
        payload_attestation = of(
            {
                "aggregation_bits": Bytes(preset.payload_committee // 8),
                "data": _PAYLOAD_ATTESTATION_DATA,
                "signature": _SIGNATURE,
            }
        )
        fields |= {
            "bls_to_execution_changes": changes,
            "signed_execution_payload_bid": Container({"message": of(_BID_FIELDS), "signature": _SIGNATURE}),
            "payload_attestations": List(payload_attestation, None),
            "parent_execution_requests": of(requests),
        }
        return of(fields)
    fields["execution_payload"] = _payload_of(layout, preset)
    if layout >= Layout.CAPELLA:
        fields["bls_to_execution_changes"] = changes
    if layout >= Layout.DENEB:
        fields["blob_kzg_commitments"] = List(_BLOB_COMMITMENT, 4096)
    if electra:
        fields["execution_requests"] = of(requests)
    return of(fields)
