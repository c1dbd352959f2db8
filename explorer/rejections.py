"""What a rejection means for who submitted the batch, by its stable code."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Advice:
    happened: str
    do: str


_ADVICE = {
    "block_too_old": Advice(
        "An old block is reached from a newer one that the destination chain can vouch for: by hops through the source "
        "chain's history of block hashes, or header by header where there is none. To this block it would take more of "
        "them than this service goes.",
        "Ask for a newer block. Or ask the operator of this service to go further: max_hops and max_headers_walked in "
        "chains.toml are the limits.",
    ),
    "block_too_far_ahead": Advice(
        "The block does not exist yet, and a batch waits only for blocks that come soon.",
        "Check the block number. If it is right, send the same batch again when the chain is nearer to it.",
    ),
    "timestamp_too_far_ahead": Advice(
        "The time is still to come, and a batch waits only for times that come soon.",
        "Check the time: it is in seconds since 1970, in UTC, not in milliseconds. If it is right, send the same batch "
        "again when that time is nearer.",
    ),
    "timestamp_before_first_block": Advice(
        "The source chain had no block yet at that time, so none can be the latest at it.",
        "Check the time: it is in seconds since 1970, in UTC. Ask for one that is not before the chain's first block.",
    ),
    "header_property_missing": Advice(
        "Headers got some of their properties with later forks, and some chains have others of their own. This block's "
        "header does not have one that was asked for, or not in the place where Ethereum's has it.",
        "Leave that property out. If the reason above is the fork, a newer block may have it.",
    ),
    "fee_too_low": Advice(
        "Gas would have cost more than the fee that the batch offered.",
        "Send it again with a higher fee, or when gas is cheaper. The fee is only the most that it may cost.",
    ),
    "budget_exceeded": Advice(
        "Your batches have used up the gas, or the money, that they may cause in 24 hours, or this one would go beyond "
        "it.",
        "Send it again when earlier batches are more than 24 hours old, or ask for less at once.",
    ),
    "too_large_for_budget": Advice(
        "This batch alone would cause more gas, or cost more, than all of a user's batches may in 24 hours.",
        "Send it in parts, on several days, or ask the operator of this service for a higher limit.",
    ),
    "proof_unavailable": Advice(
        "No node of the source chain serves proofs at this block that could be used. Many nodes keep the state of "
        "recent blocks only; and there are chains of which no account can be proven.",
        "Unless the reason above says that, ask for a newer block, or ask the operator of this service for a node that "
        "keeps older state.",
    ),
    "deadline_exceeded": Advice(
        "Every batch has a deadline, and this one could not be proven before it.",
        "Look at the last error of its steps. When what it waited for is in order again, send the same batch again.",
    ),
}
_OTHER = Advice(
    "The batch could not be proven for the reason above.",
    "Read the reason above; if it does not help, give the batch's identifier and the code to the operator.",
)


def advice(code: str) -> Advice:
    return _ADVICE.get(code, _OTHER)
