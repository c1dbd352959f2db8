"""The endpoint of the chains' page for programs: the same content in JSON, in the API's spelling."""

import hashlib

from django.http import HttpRequest, HttpResponse
from django.utils.cache import patch_cache_control
from ninja import Router, Schema
from pydantic import Field

from config.json_objects import iso
from explorer.lists import chains_page
from explorer.lists.chains_page import Attesters, ChainsPage, Reach, ShownAttester, ShownChain, ShownConnection
from queries.api_endpoint import ETAG, READ, conditional, conditional_on

router = Router(tags=["Chains"])

KEPT_SECONDS = 15
"""For how long caches may keep it, and the page."""


class ReachOfConnection(Schema):
    anyFinalBlock: bool = Field(description="Whether any final block needs no path.")
    directBlocks: int | None = Field(description="The newest blocks, which need no path. null: any final one.")
    pathOf: str | None = Field(description="`hops` or `headers`: of what paths to older blocks are. null: not known.")
    blocksEach: int
    most: int = Field(description="The most hops or headers of a path.")
    gasEach: int
    jumps: bool = Field(description="Whether older blocks are reached by the beacon chain, whatever their age.")
    gasOfJump: int | None = Field(description="Of reaching a block so, beside its header. null: none is.")


class BalanceCost(Schema):
    gas: int = Field(description="Expected, if the source chain were as large as Ethereum.")
    wei: str | None = Field(
        description="At the present gas price, decimal, without what rollups take for data. null: that is not known."
    )


class UsualTime(Schema):
    seconds: float = Field(description="From submission to DONE: half of the batches took no longer.")
    batches: int


class AttesterAnswer(Schema):
    address: str
    host: str
    answer: str | None = Field(description="`signed`, `contradicts`, or why there is none. null: not asked yet.")
    sentence: str
    since: str | None = Field(description="Since when it has answered so.")


class AttesterRound(Schema):
    threshold: int = Field(description="How many must agree.")
    attesters: list[AttesterAnswer]
    blockNumber: str | None = Field(description="About which they were asked.")
    answeredAt: str | None


class ConnectionDetail(Schema):
    sourceChainId: str
    destinationChainId: str
    kind: str = Field(
        description="Of the block hash source: `native`, `attested`, `op-stack`, `op-stack-games`, `beacon-roots`, "
        "`arbitrum`, `arbitrum-slot` or `arbitrum-buffer`."
    )
    trust: str = Field(description="Who must be trusted for what, a sentence.")
    factsRegistry: str | None = Field(description="null: it is not deployed yet.")
    blockHashSource: str | None
    codeHash: str | None = Field(description="Keccak-256 of the registry's code, as last compared. null: not yet.")
    codeIsRight: bool = Field(description="Whether that is the code of this version.")
    notes: list[str] = Field(description="What stands in the way, in sentences.")
    reach: ReachOfConnection
    keepsHeaders: bool = Field(description="Whether a header in every window is accumulated.")
    oneBalance: BalanceCost = Field(description="Of one account's balance at a new block.")
    usualTime: UsualTime | None = Field(description="Of the batches that ended last. null: of too few.")
    attesters: AttesterRound | None = Field(description="null: the connection has none.")


class ChainDetail(Schema):
    chainId: str
    name: str
    currency: str
    isDestination: bool
    head: str | None = Field(description="Number of the newest block that was seen.")
    headAt: str | None = Field(description="The time of that block.")
    seenAt: str | None = Field(description="When a node told it.")
    finalBlock: str | None = Field(description="null: its nodes don't tell.")
    gasPrice: str | None = Field(description="Wei, decimal; of a destination.")
    keepsHashes: bool | None = Field(description="Whether its state has a history of block hashes (EIP-2935).")
    observedAt: str | None = Field(description="When a worker last looked, whether a node answered or not.")
    problems: list[str] = Field(description="What was wrong then, in sentences.")


class ChainsDetail(Schema):
    connections: list[ConnectionDetail]
    chains: list[ChainDetail]


@router.api_operation(
    READ,
    "/chains.json",
    operation_id="get_chains",
    summary="Chains in detail",
    response=ChainsDetail,
    openapi_extra=conditional_on(ETAG),
    url_name="chains_json",
)
def get_chains(request: HttpRequest) -> HttpResponse:
    """Tell what can be proven where: trust, contracts, reach and cost, and the chains as last seen."""
    content = as_json(chains_page.read())
    response = conditional(request, content, etag(content))
    patch_cache_control(response, max_age=KEPT_SECONDS, public=True)
    return response


def etag(content: bytes, *variant: object) -> str:
    """Return the ETag of this variant of an answer with this content."""
    return f'"{hashlib.sha256(content + repr(variant).encode()).hexdigest()[:16]}"'


def as_json(page: ChainsPage) -> bytes:
    connections, chains = map(_connection, page.connections), map(_chain, page.chains)
    return ChainsDetail(connections=list(connections), chains=list(chains)).model_dump_json().encode()


def _connection(one: ShownConnection) -> ConnectionDetail:
    usual = (
        None if one.usual_seconds is None else UsualTime(seconds=round(one.usual_seconds, 1), batches=one.timed_batches)
    )
    return ConnectionDetail(
        sourceChainId=str(one.source.id),
        destinationChainId=str(one.destination.id),
        kind=one.kind,
        trust=one.trust,
        factsRegistry=one.facts_registry or None,
        blockHashSource=one.block_hash_source or None,
        codeHash=one.code_hash or None,
        codeIsRight=one.code_is_right,
        notes=list(one.notes),
        reach=_reach(one.reach),
        keepsHeaders=one.keeps_headers,
        oneBalance=BalanceCost(
            gas=one.balance.gas,
            wei=_text(one.balance.wei),
        ),
        usualTime=usual,
        attesters=_round(one.attesters) if one.attesters else None,
    )


def _reach(reach: Reach) -> ReachOfConnection:
    return ReachOfConnection(
        anyFinalBlock=reach.direct is None,
        directBlocks=reach.direct,
        pathOf=reach.steps or None,
        blocksEach=reach.blocks_each,
        most=reach.most,
        gasEach=reach.gas_each,
        jumps=reach.jumps,
        gasOfJump=reach.gas_of_jump if reach.jumps else None,
    )


def _round(attesters: Attesters) -> AttesterRound:
    return AttesterRound(
        threshold=attesters.threshold,
        attesters=list(map(_attester, attesters.each)),
        blockNumber=_text(attesters.block),
        answeredAt=iso(attesters.answered_at),
    )


def _attester(one: ShownAttester) -> AttesterAnswer:
    return AttesterAnswer(
        address=one.address, host=one.host, answer=one.answer or None, sentence=one.sentence, since=iso(one.since)
    )


def _chain(one: ShownChain) -> ChainDetail:
    return ChainDetail(
        chainId=str(one.name.id),
        name=one.name.name,
        currency=one.name.currency,
        isDestination=one.is_destination,
        head=_text(one.head),
        headAt=iso(one.head_at),
        seenAt=iso(one.seen_at),
        finalBlock=_text(one.final),
        gasPrice=_text(one.gas_price),
        keepsHashes=one.keeps_hashes,
        observedAt=iso(one.looked_at),
        problems=list(one.problems),
    )


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)
