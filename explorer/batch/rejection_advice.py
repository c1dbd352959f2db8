"""What a page tells the submitter about a rejection, for each stable code."""

from dataclasses import dataclass

from queries.rejection_codes import RejectionCode


@dataclass(frozen=True)
class Advice:
    happened: str
    do: str
    was_wanted: bool = False  # somebody has ended it: nothing is wrong with the batch


_ADVICE: dict[str, Advice] = {
    RejectionCode.BLOCK_TOO_OLD: Advice(
        "The service reaches an old block from a newer one that the destination chain can vouch for: by hops through "
        "the source chain's history of block hashes, or header by header if there is no history. This block is further "
        "away than this service goes.",
        "Ask for a newer block. Or ask the operator of this service to raise the limits max_hops and "
        "max_headers_walked in chains.toml.",
    ),
    RejectionCode.BLOCK_TOO_FAR_AHEAD: Advice(
        "The block does not exist yet, and a batch waits only for blocks that come soon.",
        "Check the block number. If it is right, send the same batch again when the chain has come closer to it.",
    ),
    RejectionCode.TIMESTAMP_TOO_FAR_AHEAD: Advice(
        "The time is in the future, and a batch waits only for times that come soon.",
        "Check the time: it is in seconds since 1970, in UTC, not in milliseconds. If it is right, send the same batch "
        "again when that time is nearer.",
    ),
    RejectionCode.TIMESTAMP_BEFORE_FIRST_BLOCK: Advice(
        "The source chain had no block yet at that time, so none can be the latest at it.",
        "Check the time: it is in seconds since 1970, in UTC. Ask for one that is not before the chain's first block.",
    ),
    RejectionCode.FINALIZED_UNKNOWN: Advice(
        "The batch asks for the newest final block, and no node of the source chain says which one that is. Some "
        "chains have no finality of their own, and a node that has just begun may not know it yet.",
        "Name a block by its number, or the newest one as latest. If the chain has final blocks, send it again later.",
    ),
    RejectionCode.HEADER_PROPERTY_MISSING: Advice(
        "Later forks added properties to headers, and some chains have properties of their own. This block's header "
        "lacks a property that was asked for, or has it in another place than Ethereum's headers.",
        "Leave that property out. If the reason above is the fork, a newer block may have it.",
    ),
    RejectionCode.NO_SIGNER: Advice(
        "This service has no account on the destination chain that could send transactions, so it pays for nothing "
        "there.",
        'Send the batch again with "sender": "self". The service then prepares the transactions, and you, or anybody '
        "else, send them.",
    ),
    RejectionCode.FEE_TOO_LOW: Advice(
        "Gas would have cost more than the fee that the batch offered.",
        "Send it again with a higher fee, or when gas is cheaper. The fee is only the most that it may cost.",
    ),
    RejectionCode.BUDGET_EXCEEDED: Advice(
        "Your batches have used up the gas or the money that they may use in 24 hours, or this one would exceed it.",
        "Send it again when earlier batches are more than 24 hours old, or ask for less at once.",
    ),
    RejectionCode.TOO_LARGE_FOR_BUDGET: Advice(
        "This batch alone would use more gas, or cost more, than all batches of a user may in 24 hours.",
        "Send it in parts, on several days, or ask the operator of this service for a higher limit.",
    ),
    RejectionCode.PROOF_UNAVAILABLE: Advice(
        "No node of the source chain serves usable proofs at this block. Many nodes keep only the state of recent "
        "blocks, and on some chains no account can be proven.",
        "Unless the reason above says that, ask for a newer block, or ask the operator of this service for a node that "
        "keeps older state.",
    ),
    RejectionCode.DEADLINE_EXCEEDED: Advice(
        "Every batch has a deadline, and this one could not be proven before it.",
        "Look at the last error of its steps. When that problem is solved, send the same batch again.",
    ),
    RejectionCode.CANCELLED_BY_OPERATOR: Advice(
        "The operator of this service has cancelled the batch. What was sent for it before stays paid, and what that "
        "has proven stays proven.",
        "Ask the operator why, with the batch's identifier.",
        was_wanted=True,
    ),
    RejectionCode.CANCELLED_BY_USER: Advice(
        "Who submitted the batch has cancelled it. What was sent for it before stays paid, and what that has proven "
        "stays proven.",
        "Send the batch again if it is wanted after all. What the facts registry holds already isn't paid for again.",
        was_wanted=True,
    ),
}
_OTHER = Advice(
    "The batch could not be proven for the reason above.",
    "Read the reason above; if it does not help, give the batch's identifier and the code to the operator.",
)


def advice(code: str) -> Advice:
    return _ADVICE.get(code, _OTHER)
