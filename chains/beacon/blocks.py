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
    """Sizes in a block and in a state that differ between networks."""

    committees: int
    """Maximum number of committees in a slot."""
    sync_committee: int
    """Number of its validators, a multiple of 8."""
    withdrawals: int
    """Maximum number of withdrawals in a block."""
    payload_committee: int
    """Number of validators who attest whether a payload was revealed, a multiple of 8."""
    slots_per_epoch: int
    randao_mixes: int
    """The number of a state's random values."""
    slashings: int
    """The number of epochs for which a state keeps slashed amounts."""
    eth1_votes: int
    """Maximum number of votes about deposits in a state."""
    pending_withdrawals: int
    """Maximum number of partial withdrawals in a state before Gloas."""
    pending_consolidations: int
    """Maximum number of consolidations in a state before Gloas."""


MAINNET_PRESET = Preset(
    committees=64,
    sync_committee=512,
    withdrawals=16,
    payload_committee=512,
    slots_per_epoch=32,
    randao_mixes=65_536,
    slashings=8192,
    eth1_votes=2048,
    pending_withdrawals=2**27,
    pending_consolidations=2**18,
)
MINIMAL_PRESET = Preset(
    committees=4,
    sync_committee=32,
    withdrawals=4,
    payload_committee=16,
    slots_per_epoch=8,
    randao_mixes=64,
    slashings=64,
    eth1_votes=32,
    pending_withdrawals=64,
    pending_consolidations=64,
)


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


UINT64, ROOT, ADDRESS, PUBLIC_KEY, SIGNATURE = Bytes(8), Bytes(32), Bytes(20), Bytes(48), Bytes(96)

BLOCK_HEADER_FIELDS: Mapping[str, Type] = {
    "slot": UINT64,
    "proposer_index": UINT64,
    "parent_root": ROOT,
    "state_root": ROOT,
}
_HEADER = Container({**BLOCK_HEADER_FIELDS, "body": ByteList(2**32)})


def _signed(**message: Type) -> Container:
    return Container({"message": Container(message), "signature": SIGNATURE})


_BLOCK_HEADER = _signed(**BLOCK_HEADER_FIELDS, body_root=ROOT)
CHECKPOINT = Container({"epoch": UINT64, "root": ROOT})
_ATTESTATION_DATA = Container(
    {
        "slot": UINT64,
        "index": UINT64,
        "beacon_block_root": ROOT,
        "source": CHECKPOINT,
        "target": CHECKPOINT,
    }
)
_DEPOSIT_DATA: Mapping[str, Type] = {
    "pubkey": PUBLIC_KEY,
    "withdrawal_credentials": ROOT,
    "amount": UINT64,
    "signature": SIGNATURE,
}
_DEPOSIT = Container({"proof": Bytes(33 * 32), "data": Container(_DEPOSIT_DATA)})
ETH1_DATA = Container({"deposit_root": ROOT, "deposit_count": UINT64, "block_hash": ROOT})
WITHDRAWAL = Container({"index": UINT64, "validator_index": UINT64, "address": ADDRESS, "amount": UINT64})
_BLOB_COMMITMENT = Bytes(48)
# The requests of a block to the beacon chain, and their maximum number before Gloas.
_REQUESTS: Mapping[str, tuple[Container, int]] = {
    "deposits": (Container({**_DEPOSIT_DATA, "index": UINT64}), 8192),
    "withdrawals": (Container({"source_address": ADDRESS, "validator_pubkey": PUBLIC_KEY, "amount": UINT64}), 16),
    "consolidations": (
        Container({"source_address": ADDRESS, "source_pubkey": PUBLIC_KEY, "target_pubkey": PUBLIC_KEY}),
        2,
    ),
}
_REQUESTS_OF_BUILDERS: Mapping[str, Container] = {
    "builder_deposits": Container(_DEPOSIT_DATA),
    "builder_exits": Container({"source_address": ADDRESS, "pubkey": PUBLIC_KEY}),
}
BID_FIELDS: Mapping[str, Type] = {
    "parent_block_hash": ROOT,
    "parent_block_root": ROOT,
    "block_hash": ROOT,
    "prev_randao": ROOT,
    "fee_recipient": ADDRESS,
    "gas_limit": UINT64,
    "builder_index": UINT64,
    "slot": UINT64,
    "value": UINT64,
    "execution_payment": UINT64,
    "blob_kzg_commitments": List(_BLOB_COMMITMENT, None),
    "execution_requests_root": ROOT,
}
_PAYLOAD_ATTESTATION_DATA = Container(
    {
        "beacon_block_root": ROOT,
        "slot": UINT64,
        "payload_present": Bytes(1),
        "blob_data_available": Bytes(1),
    }
)


# The first fields of a payload and of its header.
PAYLOAD_FIELDS: Mapping[str, Type] = {
    "parent_hash": ROOT,
    "fee_recipient": ADDRESS,
    "state_root": ROOT,
    "receipts_root": ROOT,
    "logs_bloom": Bytes(256),
    "prev_randao": ROOT,
    "block_number": UINT64,
    "gas_limit": UINT64,
    "gas_used": UINT64,
    "timestamp": UINT64,
    "extra_data": ByteList(32),
    "base_fee_per_gas": Bytes(32),
    "block_hash": ROOT,
}


def _payload_of(layout: Layout, preset: Preset) -> Container:
    fields: dict[str, Type] = {**PAYLOAD_FIELDS, "transactions": List(ByteList(2**30), 2**20)}
    if layout >= Layout.CAPELLA:
        fields["withdrawals"] = List(WITHDRAWAL, preset.withdrawals)
    if layout >= Layout.DENEB:
        fields |= {"blob_gas_used": UINT64, "excess_blob_gas": UINT64}
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
    signed_data: Mapping[str, Type] = {"data": _ATTESTATION_DATA, "signature": SIGNATURE}
    attestation: dict[str, Type] = {"aggregation_bits": BitList(attesters), **signed_data}
    if electra:
        attestation["committee_bits"] = Bytes(-(-preset.committees // 8))
    indexed = of({"attesting_indices": List(UINT64, attesters, packed=True), **signed_data})
    change = _signed(validator_index=UINT64, from_pubkey=PUBLIC_KEY, to_address=ADDRESS)
    changes = List(change, at_most(16))
    requests = {name: List(request, at_most(limit)) for name, (request, limit) in _REQUESTS.items()}
    fields: dict[str, Type] = {
        "randao_reveal": SIGNATURE,
        "eth1_data": ETH1_DATA,
        "graffiti": ROOT,
        "proposer_slashings": List(Container({"header_1": _BLOCK_HEADER, "header_2": _BLOCK_HEADER}), at_most(16)),
        "attester_slashings": List(
            Container({"attestation_1": indexed, "attestation_2": indexed}), at_most(1 if electra else 2)
        ),
        "attestations": List(of(attestation), at_most(8 if electra else 128)),
        "deposits": List(_DEPOSIT, at_most(16)),
        "voluntary_exits": List(_signed(epoch=UINT64, validator_index=UINT64), at_most(16)),
        "sync_aggregate": Container({"bits": Bytes(preset.sync_committee // 8), "signature": SIGNATURE}),
    }
    if gloas:
        requests |= {name: List(request, None) for name, request in _REQUESTS_OF_BUILDERS.items()}
        payload_attestation = of(
            {
                "aggregation_bits": Bytes(preset.payload_committee // 8),
                "data": _PAYLOAD_ATTESTATION_DATA,
                "signature": SIGNATURE,
            }
        )
        fields |= {
            "bls_to_execution_changes": changes,
            "signed_execution_payload_bid": Container({"message": of(BID_FIELDS), "signature": SIGNATURE}),
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
