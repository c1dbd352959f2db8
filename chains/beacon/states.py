"""Beacon states since Gloas as clients send them (SSZ), and the branch to the historical summaries in them.

Ethereum consensus specifications, `specs/gloas/beacon-chain.md` and `presets/`.
"""

from chains.beacon.blocks import (
    ADDRESS,
    BID_FIELDS,
    BLOCK_HEADER_FIELDS,
    CHECKPOINT,
    ETH1_DATA,
    PUBLIC_KEY,
    ROOT,
    SIGNATURE,
    UINT64,
    WITHDRAWAL,
    Preset,
)
from chains.beacon.ssz import Bytes, Container, List, Type, Vector

_SUMMARIES = "historical_summaries"
# Maximum elements of the state's limited lists (HISTORICAL_ROOTS_LIMIT).
_MOST_PERIODS = 1 << 24


def summaries(encoded: bytes, preset: Preset) -> tuple[list[tuple[bytes, bytes]], list[bytes]]:
    """Return the historical summaries of an encoded state, and the branch to its root. Raises `InvalidSsz`."""
    kind = state_of(preset)
    data = kind.parts(encoded)[_SUMMARIES]
    _, branch = kind.branch(encoded, _SUMMARIES)
    return [(data[at : at + 32], data[at + 32 : at + 64]) for at in range(0, len(data), 64)], branch


def _many(*numbers: str, **fields: Type) -> List:
    """Return a progressive list of containers, whose fields `numbers` are integers."""
    return List(Container({**fields, **dict.fromkeys(numbers, UINT64)}), None)


def state_of(preset: Preset) -> Container:
    """Return the type of a state."""
    roots, numbers = Bytes(32 * preset.slots_per_period), List(UINT64, None, packed=True)
    flags = List(Bytes(1), None, packed=True)
    committee = Container({"pubkeys": Vector(PUBLIC_KEY, preset.sync_committee), "aggregate_pubkey": PUBLIC_KEY})
    pending_withdrawal = Container({"fee_recipient": ADDRESS, "amount": UINT64, "builder_index": UINT64})
    payment = Container({"weight": UINT64, "withdrawal": pending_withdrawal, "proposer_index": UINT64})
    fields: dict[str, Type] = {
        "genesis_time": UINT64,
        "genesis_validators_root": ROOT,
        "slot": UINT64,
        "fork": Container({"previous_version": Bytes(4), "current_version": Bytes(4), "epoch": UINT64}),
        "latest_block_header": Container({**BLOCK_HEADER_FIELDS, "body_root": ROOT}),
        "block_roots": roots,
        "state_roots": roots,
        "historical_roots": List(ROOT, _MOST_PERIODS),
        "eth1_data": ETH1_DATA,
        "eth1_data_votes": List(ETH1_DATA, preset.eth1_votes),
        "eth1_deposit_index": UINT64,
        "validators": List(
            Container(
                {
                    "pubkey": PUBLIC_KEY,
                    "withdrawal_credentials": ROOT,
                    "effective_balance": UINT64,
                    "slashed": Bytes(1),
                    "activation_eligibility_epoch": UINT64,
                    "activation_epoch": UINT64,
                    "exit_epoch": UINT64,
                    "withdrawable_epoch": UINT64,
                }
            ),
            None,
        ),
        "balances": numbers,
        "randao_mixes": Bytes(32 * preset.randao_mixes),
        "slashings": Bytes(8 * preset.slashings),
        "previous_epoch_participation": flags,
        "current_epoch_participation": flags,
        "justification_bits": Bytes(1),
        "previous_justified_checkpoint": CHECKPOINT,
        "current_justified_checkpoint": CHECKPOINT,
        "finalized_checkpoint": CHECKPOINT,
        "inactivity_scores": numbers,
        "current_sync_committee": committee,
        "next_sync_committee": committee,
        "latest_block_hash": ROOT,
        "next_withdrawal_index": UINT64,
        "next_withdrawal_validator_index": UINT64,
        _SUMMARIES: List(Container({"block_summary_root": ROOT, "state_summary_root": ROOT}), _MOST_PERIODS),
        "deposit_requests_start_index": UINT64,
        "deposit_balance_to_consume": UINT64,
        "exit_balance_to_consume": UINT64,
        "earliest_exit_epoch": UINT64,
        "consolidation_balance_to_consume": UINT64,
        "earliest_consolidation_epoch": UINT64,
        "pending_deposits": List(
            Container(
                {
                    "pubkey": PUBLIC_KEY,
                    "withdrawal_credentials": ROOT,
                    "amount": UINT64,
                    "signature": SIGNATURE,
                    "slot": UINT64,
                }
            ),
            None,
        ),
        "pending_partial_withdrawals": _many("validator_index", "amount", "withdrawable_epoch"),
        "pending_consolidations": _many("source_index", "target_index"),
        "proposer_lookahead": Bytes(8 * 2 * preset.slots_per_epoch),
        "builders": _many(
            "balance",
            "deposit_epoch",
            "withdrawable_epoch",
            pubkey=PUBLIC_KEY,
            version=Bytes(1),
            execution_address=ADDRESS,
        ),
        "next_withdrawal_builder_index": UINT64,
        "execution_payload_availability": Bytes(preset.slots_per_period // 8),
        "builder_pending_payments": Vector(payment, 2 * preset.slots_per_epoch),
        "builder_pending_withdrawals": List(pending_withdrawal, None),
        "latest_execution_payload_bid": Container(BID_FIELDS, progressive=True),
        "payload_expected_withdrawals": List(WITHDRAWAL, None),
        "ptc_window": Vector(Bytes(8 * preset.payload_committee), 3 * preset.slots_per_epoch),
    }
    return Container(fields, progressive=True)
