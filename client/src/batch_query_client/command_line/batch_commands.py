"""Commands about batches."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import click

import batch_query_client as client
from batch_query_client.command_line import credentials
from batch_query_client.command_line.asked_in_files import (
    BatchBody,
    BatchOptions,
    Connections,
    batch_body,
    connected,
    read_block,
    read_time,
)
from batch_query_client.command_line.exit_codes import ExitCode
from batch_query_client.command_line.keystores import open_keystore
from batch_query_client.command_line.options import (
    chain_option,
    read_amount,
    with_base,
    with_json,
    with_keystore,
    with_node,
    with_question,
    with_timeout,
    with_url,
)
from batch_query_client.command_line.output import (
    cost,
    currencies,
    fact_value,
    namespace_of,
    print_facts,
    print_fields,
    print_json,
    print_table,
    progress,
    property_name,
    say,
    say_claims,
    subject,
)
from batch_query_client.plain_text import hex_data
from batch_query_client.remote_reads import (
    RemoteRead,
    ShownSlot,
    remote_read,
    remote_read_beyond,
    shown_slot,
    state_root_slot,
)
from batch_query_client.stated_words import in_units

_STATUSES = ("RECEIVED", "ACCEPTED", "IN_PROGRESS", "DONE", "REJECTED", "CANCELLED")
_LARGEST_PAGE = 100
# Seconds to wait for a service that is down, while a command waits for a batch.
_WATCH_PATIENCE = 300
_BALANCE = "balanceOf(address)"


@click.command()
@with_question
@click.option("--label", metavar="TEXT", help="A name by which lists find the batch. Others may see it.")
@click.option("--idempotency-key", metavar="TEXT", help="Repeated requests with the same text make one batch only.")
@click.option("--wait", is_flag=True, help="Follow the batch until it is done, and print its facts.")
@with_timeout
@with_url
@with_json
def submit(
    *,
    options: BatchOptions,
    idempotency_key: str | None,
    wait: bool,
    timeout: float | None,
    url: str | None,
    is_json: bool,
) -> None:
    """Submit a batch of queries, and print its identifier.

    FILE is a request's JSON body in the API's form, a list of addresses, or CSV. The first line of CSV names its
    columns: address, block, properties, slots, header, chain, transaction or logs. Options replace what a line leaves
    out. - is standard input.
    """
    service = credentials.service(url, patience=_WATCH_PATIENCE if wait else credentials.PATIENCE_SECONDS)
    body = _body(options, service)
    with body.naming_lines():
        # With a key of the user's, the batch may exist already.
        if idempotency_key is None:
            _check(body, url)
        batch = service.submit_body(body.document, idempotency_key=idempotency_key)
    page = f"The page of batch {batch.id} is {batch.page}"
    if wait:
        say(page)
        _follow(service, batch, timeout, is_json=is_json)
    elif is_json:
        print_json({"internalId": batch.id, "page": batch.page})
    else:
        click.echo(batch.id)
        say(page)


def _check(body: BatchBody, url: str | None) -> None:
    """Raise `InvalidRequest` if the estimate says that the batch would be rejected, and that no later try helps."""
    try:
        estimate = credentials.service(url, patience=0).estimate_body(body.document)
    except client.BatchQueryError:
        return  # The submission tells what is wrong.
    for rejection in estimate.rejections:
        if not rejection.retryable:
            sentence = f"Nothing was submitted, because the service would reject the batch. {rejection.error}"
            raise client.InvalidRequest(sentence, status=422, code=rejection.code)


def _body(options: BatchOptions, service: client.BatchQueryService, connections: Connections = tuple) -> BatchBody:
    if options.token is not None or options.holders or options.base is not None:
        options = _of_token(connected(options, connections), service)

    def check(document: Mapping[str, Any]) -> client.InvalidRequest | None:
        try:
            service.estimate_body(document)
        except client.InvalidRequest as invalid:
            return invalid
        except client.BatchQueryError:
            pass  # The file's own faults are told all the same.
        return None

    return batch_body(
        options,
        lambda: {chain.name.casefold(): chain.chain_id for chain in service.chains()},
        connections,
        check,
    )


def _of_token(options: BatchOptions, service: client.BatchQueryService) -> BatchOptions:
    """Return options that name the slots of balances of a token. Raises `click.UsageError`.

    The slot of the first holder is searched. Those of the others have its name with another key.
    """
    needed = {"--token": options.token, "--holder": options.holders, "--chain": options.chain}
    missing = [name for name, value in (needed | {"--destination": options.destination}).items() if not value]
    if options.token is None or options.chain is None or missing:
        raise click.UsageError(f"A token's balance needs {' and '.join(missing)}.")
    if options.time:
        raise click.UsageError("Leave out --time: a token's balance takes --block.")
    if options.file or options.accounts or options.slots or options.props:
        raise click.UsageError("Name either a token's balance, or other facts.")
    if names := [holder for holder in options.holders if not re.fullmatch("0x[0-9a-fA-F]{40}", holder)]:
        raise click.UsageError(f"--holder takes addresses, and {names[0]!r} is none.")
    # A key that is the token's own address may be the contract itself, so it shows no holder's place.
    token = options.token.casefold()
    first, *others = sorted(options.holders, key=lambda holder: holder.casefold() == token)
    block = read_block(options.block or "latest")
    found = service.find_slots(options.token, _BALANCE, first, chain=options.chain, block=block, base=options.base)
    slot = found.slots[0]
    if not slot.is_answer:
        raise click.UsageError(
            f"The balance is not the word of one slot ({slot.certainty}), so it can't be proven as one value. Prove "
            "the words it follows from by --account and --slot, as `bqs find-slots` shows them, and compute it in your "
            "contract."
        )
    name = slot.slot_name
    if name and first[2:].casefold() not in json.dumps(name).casefold():
        raise client.UnexpectedAnswer("The service names a slot that isn't of this holder.")
    by_holder = _is_by_holder(slot, token, first)
    if others and not (name and by_holder and slot.layout != "solady"):
        raise click.UsageError("The holder is no key of the slot's name, so each --holder needs a batch of its own.")
    at = slot.slot if slot.account.casefold() == token else f"{slot.slot} of {slot.account}"
    decimals = found.hints.decimals
    units = "" if decimals is None else f" Divide the balance by 10^{decimals}, as the contract says."
    amount = _value_or_word(slot)
    say(f"The balance of {first} at block {found.block_number} is {amount}, in {at} ({slot.layout}).{units}")
    say_claims([name])
    say(f"A contract reads it with {_in_solidity(slot, is_by_holder=by_holder)}")
    _say_places(found)
    if name is None and slot.part and not slot.part.is_whole:
        name = {"slot": slot.slot, "keys": [], "call": _BALANCE, "part": slot.part.model_dump()}
    slots = [slot.slot] if name is None else [json.dumps(name), *(json.dumps(name | {"keys": [one]}) for one in others)]
    block_number = str(found.block_number)
    return replace(options, token=None, holders=(), accounts=[slot.account], slots=slots, block=block_number)


def _is_by_holder(slot: client.SlotOfCall, token: str, holder: str) -> bool:
    """Return whether the slot follows from the holder alone: by the only key of its name, or in Solady's layout.

    A key that is the contract's own address may be the contract itself, for every holder.
    """
    if holder.casefold() in {token, slot.account.casefold()}:
        return False
    keys = [str(key).casefold() for key in (slot.slot_name or {}).get("keys", ())]
    return slot.layout == "solady" or keys == [holder.casefold()]


def _in_solidity(slot: client.SlotOfCall, *, is_by_holder: bool) -> str:
    """Return the code that reads a balance with the Solidity library, for any holder if `is_by_holder`."""
    base = str((slot.slot_name or {}).get("slot"))
    place = f"bytes32({slot.slot})"
    if is_by_holder and slot.layout == "solady":
        place = "ProvenFacts.soladySlot(0x87a211a2, holder)"
    elif is_by_holder and re.fullmatch("0x[0-9a-f]{1,64}", base):
        function = "mappingSlot" if slot.layout == "solidity" else "vyperMappingSlot"
        place = f"ProvenFacts.{function}({base}, holder)"
    word = f"registry.slotAt({slot.account}, blockNumber, {place})"
    part = slot.part
    if part is None or part.is_whole:
        return f"uint256({word})"
    function = "signedPart" if part.form == "signed" else "part"
    number = f"ProvenFacts.{function}({word}, {part.offset}, {part.size})"
    match part.form:
        case "bool":
            return f"{number} != 0 ? 1 : 0"
        case "left":
            return f"{number} << {256 - part.size}"
    return number


def _say_places(found: client.FoundSlots) -> None:
    """Say which bits of a word are the answer, which namespaces slots are in, and that a node alone says so."""
    if len(found.confirmed_by) == 1:
        say(f"Only the node {found.confirmed_by[0]} confirms this.")
    for slot in found.slots:
        if slot.is_answer and slot.part and not slot.part.is_whole:
            last = slot.part.offset + slot.part.size - 1
            say(f"The answer is the part in bits {slot.part.offset} to {last} of the word {hex_data(slot.word)}.")
        base = str((slot.slot_name or {}).get("slot"))
        if known := namespace_of(base):
            say(f"{base} is {known}.")


@click.command("find-slots")
@click.argument("contract")
@click.argument("signature")
@click.argument("arguments", nargs=-1)
@chain_option("--chain", required=True, help="The contract's chain.")
@click.option("--block", default="latest", show_default=True, metavar="BLOCK", help="A number, latest or finalized.")
@click.option(
    "--position",
    type=click.IntRange(0, 99),
    metavar="PLACE",
    help="The position of the word in an answer with several words, from 0.",
)
@with_base
@with_url
@with_json
def find_slots(
    *,
    contract: str,
    signature: str,
    arguments: Sequence[str],
    chain: int,
    block: str,
    position: int | None,
    base: str | None,
    url: str | None,
    is_json: bool,
) -> None:
    """Find the storage slot from which a view call of a CONTRACT answers.

    SIGNATURE is such as balanceOf(address), and ARGUMENTS are its values. --slot takes the slots' names. Put -- before
    negative numbers.
    """
    service = credentials.service(url)
    found = service.find_slots(
        contract, signature, *arguments, chain=chain, block=read_block(block), position=position, base=base
    )
    if is_json:
        print_json(found)
        return
    print_table(
        ("certainty", "contract", "slot", "layout", "value"),
        [
            (slot.certainty, slot.account, _slot_name(slot.slot_name, slot.slot), slot.layout, _value_or_word(slot))
            for slot in found.slots
        ],
    )
    say_claims([slot.slot_name for slot in found.slots])
    say(f"Found at block {found.block_number} by {found.found_by}.")
    _say_places(found)
    for other in found.depends_on:
        say(f"It depends on {_slot_name(other.slot_name, other.slot)} of {other.account}: {other.role}.")
    if any(slot.only_at_this_block for slot in found.slots):
        say("Other words or the time choose the slot, such as an array's length. Later it may be another slot.")


def _value_or_word(slot: client.SlotOfCall) -> str:
    """Return the answer, and its amount such as 1,000 LEND, or the word if it isn't the answer."""
    number = slot.part.of(slot.word, is_amount=True) if slot.part else 0
    amount = in_units(slot.slot_name or {}, number) if slot.part else ""
    return f"{slot.value} ({amount})" if amount else slot.value or hex_data(slot.word)


def _slot_name(name: Mapping[str, Any] | None, slot: str) -> str:
    return slot if name is None else json.dumps(name)


def _pairs_of(service: client.BatchQueryService) -> Connections:
    """Return a function that asks for the pairs of source and destination chains."""
    return lambda: [(pair.origin_chain_id, pair.destination_chain_id) for pair in service.connections()]


@click.command()
@with_question
@with_url
@with_json
def estimate(*, options: BatchOptions, url: str | None, is_json: bool) -> int:
    """Estimate the cost of a batch, and check if it would be accepted. Nothing is stored.

    FILE and options are as for submit. Chains may be left out if exactly one connection of the service fits. The exit
    code is 1 if the batch would be rejected.
    """
    service = credentials.service(url)
    body = _body(options, service, _pairs_of(service))
    with body.naming_lines():
        answer = service.estimate_body(body.document)
    if is_json:
        print_json(answer)
    else:
        _print_estimate(answer, currencies(service).get(int(body.document["destinationChainId"]), ""))
    return ExitCode.REJECTED if answer.rejections else ExitCode.OK


def _print_estimate(answer: client.Estimate, currency: str) -> None:
    print_fields(
        [
            ("gas", f"{answer.gas.expected}, at most {answer.gas.bound}"),
            ("cost", f"{cost(answer.wei.expected, currency)}, at most {cost(answer.wei.bound, currency)}"),
            ("transactions", answer.transactions),
            ("blocks to done", answer.blocks_to_done),
            ("seconds to done", answer.seconds_to_done),
        ]
    )
    rows: list[tuple[object, ...]] = []
    for source in answer.sources:
        rows.append((source.source_chain_id, "all", "", "", source.gas.expected, source.gas.bound))
        for name, part in source.parts.items():
            rows.append((source.source_chain_id, name, part.count, part.in_registry, part.gas.expected, part.gas.bound))
    print_table(
        ("source", "part", "count", "there already", "gas", "at most"), rows, empty="There is nothing to prove."
    )
    for wait in answer.waits:
        say(wait)
    for rejection in answer.rejections:
        say(f"It would be rejected ({rejection.code}): {rejection.error}")


@click.command()
@with_question
@click.option(
    "--withdrawal",
    "withdrawals",
    multiple=True,
    type=click.IntRange(min=0),
    metavar="PLACE",
    help="A withdrawal from the beacon chain, counted from 0 within the block. May be repeated.",
)
@click.option(
    "--erc7888",
    "pointer",
    metavar="POINTER",
    help="Print the route, scpInputs and proof for a receiver that reads one slot of one account through this pointer.",
)
@click.option(
    "--via",
    type=(click.IntRange(min=1), click.IntRange(min=0), str, str),
    metavar="CHAIN BLOCK REGISTRY POINTER",
    help="Go through a chain in between: its id, a block that the destination knows, and its registry and pointer.",
)
@with_url
@with_json
def proofs(
    *,
    options: BatchOptions,
    pointer: str | None,
    via: tuple[int, int, str, str] | None,
    url: str | None,
    is_json: bool,
) -> None:
    """Show accounts, slots, transactions and withdrawals, with proofs that a contract reads in its own call.

    FILE and options are as for submit. Nothing is stored or paid. A contract can read a value once its root is a fact.
    --json has the proofs, and the calls of the facts reader.
    """
    service = credentials.service(url)
    if pointer is not None:
        _print_remote_read(_remote_read(options, pointer, via, service), is_json=is_json)
        return
    if via is not None:
        raise click.UsageError("--via is for --erc7888.")
    body = _body(options, service, _pairs_of(service))
    with body.naming_lines():
        answers = service.read_proofs_body(body.document)
    if is_json:
        print_json([proof.source for proof in answers])
        return
    units = currencies(service)
    print_table(
        ("chain", "block", "about", "property", "value", "root", "bytes"),
        [
            (
                proof.source_chain_id,
                proof.block_number,
                subject(proof),
                property_name(proof),
                fact_value(proof, units),
                "a fact" if proof.root.is_fact else f"{proof.root.property} is no fact yet",
                len(proof.proof),
            )
            for proof in answers
        ],
    )
    say_claims([proof.slot_name for proof in answers])


def _remote_read(
    options: BatchOptions,
    pointer: str,
    via: tuple[int, int, str, str] | None,
    service: client.BatchQueryService,
) -> RemoteRead:
    def shown(options: BatchOptions) -> ShownSlot:
        body = _body(replace(options, props=["STORAGE_ROOT"]), service, _pairs_of(service))
        try:
            found = shown_slot(service.read_proofs_body(body.document))
        except ValueError as error:
            raise click.UsageError(f"--erc7888: {error}") from None
        if not found.is_known:
            say(f"The state root of block {found.block_number} is not a fact yet, so the receiver would revert.")
        return found

    if via is None:
        return remote_read(pointer, shown(options))
    chain, block, registry, second = via
    target = shown(replace(options, destination=chain))
    slot = f"0x{state_root_slot(target.block_number):064x}"
    between = replace(options, chain=chain, block=str(block), time=None, accounts=[registry], slots=[slot])
    return remote_read_beyond(pointer, shown(between), remote_read(second, target), target.block_number)


def _print_remote_read(read: RemoteRead, *, is_json: bool) -> None:
    told = {"route": [*read.route], "scpInputs": [*map(hex_data, read.scp_inputs)], "proof": hex_data(read.proof)}
    if is_json:
        print_json(told)
        return
    for name, value in told.items():
        for each in [value] if isinstance(value, str) else value:
            click.echo(f"{name:<9} {each}")


@click.command()
@click.argument("batch")
@with_timeout
@with_url
@with_json
def watch(*, batch: str, timeout: float | None, url: str | None, is_json: bool) -> None:
    """Wait for a BATCH until it is done, and print its facts."""
    service = credentials.service(url, patience=_WATCH_PATIENCE)
    _follow(service, service.batch(batch), timeout, is_json=is_json)


def _follow(service: client.BatchQueryService, batch: client.Batch, timeout: float | None, *, is_json: bool) -> None:
    with progress(is_json=is_json) as show:
        done = batch.wait(timeout, progress=show)
    if is_json:
        print_json(done)
    else:
        print_facts(done.facts, currencies(service))


@click.command()
@click.argument("batch", required=False)
@with_node("destination")
@click.option("--registry", metavar="ADDRESS", help="The facts registry that you rely on, for a batch of one source.")
@chain_option("--destination", "destination_chain_id", help="Facts on this chain.")
@chain_option("--chain", "source_chain_id", help="Facts about this source chain.")
@click.option("--account", metavar="ADDRESS", help="Facts of this account.")
@click.option("--block", type=click.IntRange(min=0), metavar="NUMBER", help="Facts at this block.")
@click.option("--property", "property_", metavar="NAME", help="Facts of this kind, such as BALANCE or SLOT.")
@click.option("--slot", metavar="HEX", help="Facts about this slot.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Maximum number of facts, without a BATCH.",
)
@with_url
@with_json
def read(
    *,
    batch: str | None,
    rpc_url: str | None,
    registry: str | None,
    limit: int,
    url: str | None,
    is_json: bool,
    **filters: Any,
) -> None:
    """Print the facts of a BATCH, or facts that the service has proven for anybody.

    With --rpc-url a batch's facts are read from the chain, and compared with the service's. The exit code is 7 if they
    differ. Without a BATCH, --account or --block is needed, and the other options filter the listed facts.
    """
    service = credentials.service(url)
    chosen = {name.rstrip("_"): value for name, value in filters.items() if value is not None}
    if batch is None:
        if registry is not None:
            raise click.UsageError("--registry is for the facts of a batch.")
        if not chosen.keys() & {"account", "block"}:
            raise click.UsageError("Name a BATCH, or the facts by --account or --block.")
        facts, following = _pages(partial(service.facts, **chosen), "facts", limit)
        _print_read(service, facts, following, is_json=is_json)
        return
    if chosen:
        raise click.UsageError("Name either a batch or filters of facts.")
    opened = service.batch(batch)
    if rpc_url is None:
        if registry is not None:
            raise click.UsageError("--registry needs --rpc-url.")
        _print_read(service, opened.details().facts, is_json=is_json)
        return
    registries = None
    if registry is not None:
        sources = opened.details().source_chain_ids
        if len(sources) != 1:
            raise click.UsageError("The batch has several source chains, each with its own registry.")
        registries = {sources[0]: registry}
    _print_read(service, opened.facts_on_chain(rpc_url, registries=registries), is_json=is_json)


def _print_read(
    service: client.BatchQueryService, facts: Sequence[client.Fact], following: str | None = None, *, is_json: bool
) -> None:
    if is_json:
        print_json({"facts": facts, "next": following})
    else:
        print_facts(facts, currencies(service))


def _pages(ask: Callable[..., Any], name: str, limit: int) -> tuple[list[Any], str | None]:
    """Return the first `limit` entries of a paged list, and the cursor of the next page.

    `name` is the field of entries.
    """
    page = ask(limit=min(limit, _LARGEST_PAGE))
    entries = [*getattr(page, name)]
    while page.next is not None and len(entries) < limit:
        page = ask(limit=min(limit - len(entries), _LARGEST_PAGE), cursor=page.next)
        entries += getattr(page, name)
    return entries, page.next


@click.command("list")
@click.option("--status", type=click.Choice(_STATUSES, case_sensitive=False), help="Batches of this status.")
@click.option("--label", metavar="TEXT", help="Batches with this label.")
@chain_option("--destination", "destination_chain_id", help="Batches for this chain.")
@chain_option("--chain", "source_chain_id", help="Batches about this source chain.")
@click.option("--account", metavar="ADDRESS", help="Batches that ask for this account.")
@click.option("--block", metavar="NUMBER", help="Batches that ask for this block.")
@click.option("--after", metavar="TIME", help="Batches made after a time, in seconds or ISO 8601.")
@click.option("--before", metavar="TIME", help="Batches made before a time.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Maximum number of batches.")
@with_url
@with_json
def list_batches(
    *, after: str | None, before: str | None, limit: int, url: str | None, is_json: bool, **filters: Any
) -> None:
    """List your batches, newest first."""
    chosen = {name: value for name, value in filters.items() if value is not None}
    if "block" in chosen:
        chosen["block"] = read_block(chosen["block"])
    for name, text in (("created_after", after), ("created_before", before)):
        if text is not None:
            chosen[name] = datetime.fromtimestamp(read_time(text), UTC)
    service = credentials.service(url)
    batches, following = _pages(partial(service.batches, **chosen), "batch_queries", limit)
    if is_json:
        print_json({"batchQueries": batches, "next": following})
        return
    rows = [
        (
            batch.internal_id,
            batch.status,
            f"{batch.queries_completed}/{batch.queries}",
            ",".join(map(str, batch.source_chain_ids)),
            batch.destination_chain_id,
            f"{batch.created_at.astimezone(UTC):%Y-%m-%d %H:%M}",
            batch.rejection.code if batch.rejection else "",
            batch.label,
        )
        for batch in batches
    ]
    print_table(("batch", "status", "queries", "sources", "destination", "made (UTC)", "rejected", "label"), rows)


@click.command()
@click.argument("batch")
@with_url
@with_json
def cancel(*, batch: str, url: str | None, is_json: bool) -> None:
    """Cancel a BATCH that is not done. Transactions that were sent stay on the chain."""
    cancelled = credentials.service(url).batch(batch).cancel()
    if is_json:
        print_json(cancelled)
    else:
        say(f"The batch {batch} is cancelled.")


# --- Self-funded batches ----------------------------------------------------------------------------------------------


@click.command()
@click.argument("batch")
@with_node("destination", required=True)
@with_keystore
@click.option("--yes", is_flag=True, help="Sign without asking.")
@click.option("--most", type=read_amount, metavar="ETH", help="Maximum cost of all transactions together.")
@click.option("--timeout", type=click.FloatRange(min=0), default=1800, show_default=True, metavar="SECONDS")
@with_url
@with_json
def send(
    *,
    batch: str,
    rpc_url: str,
    keystore: Path | None,
    password_file: Path | None,
    yes: bool,
    most: int | None,
    timeout: float,
    url: str | None,
    is_json: bool,
) -> None:
    """Send the transactions of a BATCH that you pay yourself (submit --pay-myself), until it is complete.

    A transaction is signed only if it proves something to a facts registry.
    """
    if keystore is None:
        raise click.UsageError("Name the key file of the account that pays: --keystore.")
    service = credentials.service(url)
    names = currencies(service)
    payer = client.Payer(open_keystore(keystore, password_file), partial(_confirm, names, is_asked=not yes), most)
    sent = service.batch(batch).send(rpc_url, payer, timeout=timeout, progress=_waits_printed_once())
    if is_json:
        shown = [
            {
                "hash": transaction.hash,
                "what": transaction.what,
                "gasUsed": transaction.gas_used,
                "cost": str(transaction.cost),
            }
            for transaction in sent
        ]
        print_json({"internalId": batch, "sent": shown})
        return
    rows = [
        (
            transaction.hash,
            transaction.gas_used,
            cost(transaction.cost, names.get(transaction.chain_id, "")),
            transaction.what,
        )
        for transaction in sent
    ]
    print_table(("transaction", "gas", "cost", "what"), rows)


def _confirm(names: Mapping[int, str], to_sign: client.ToSign, *, is_asked: bool) -> bool:
    """Print the transaction, and return whether the user agrees. `names` are the chains' currencies by id."""
    most = cost(to_sign.most_wei, names.get(to_sign.chain_id, ""))
    say(f"{to_sign.what} To {to_sign.to}, {to_sign.gas} gas, at most {most}.")
    return not is_asked or click.confirm("Sign and send it?", err=True)


def _waits_printed_once() -> Any:
    """Return a function that prints each wait only once."""
    printed: set[str] = set()

    def tell(sending: client.Sending) -> None:
        for sentence in sending.waits:
            if sentence not in printed:
                printed.add(sentence)
                say(sentence)

    return tell


COMMANDS = (submit, estimate, proofs, find_slots, watch, read, list_batches, cancel, send)
