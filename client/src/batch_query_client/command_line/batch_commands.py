"""Commands about batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import click

import batch_query_client as client
from batch_query_client.command_line import credentials
from batch_query_client.command_line.asked_in_files import Asked, Connections, document, read_block, read_time
from batch_query_client.command_line.exit_codes import ExitCode
from batch_query_client.command_line.keystores import open_keystore
from batch_query_client.command_line.options import (
    read_amount,
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
    print_facts,
    print_fields,
    print_json,
    print_table,
    progress,
    say,
)

_STATUSES = ("RECEIVED", "ACCEPTED", "IN_PROGRESS", "DONE", "REJECTED")
_LARGEST_PAGE = 100
# Seconds to wait for a service that is down, while waiting for a batch.
_WATCH_PATIENCE = 300


@click.command()
@with_question
@click.option("--idempotency-key", metavar="TEXT", help="Sent again with the same, it makes one batch only.")
@click.option("--wait", is_flag=True, help="Follow it until it is done, and print its facts.")
@with_timeout
@with_url
@with_json
def submit(
    *, asked: Asked, idempotency_key: str | None, wait: bool, timeout: float | None, url: str | None, is_json: bool
) -> None:
    """Ask for facts, and print the batch's identifier.

    FILE is JSON, a request's body as the API specifies it, or a list of addresses or CSV as the service's form takes
    it: with the columns address, block, properties, slots, header and chain, in this order or as the first line names
    them. What a line leaves out is as the options say. - is standard input.
    """
    service = credentials.service(url, patience=_WATCH_PATIENCE if wait else credentials.PATIENCE_SECONDS)
    batch = service.submit_body(_document(asked, service), idempotency_key=idempotency_key)
    if wait:
        say(f"The batch is {batch.id}; its page is {batch.page}")
        _follow(service, batch, timeout, is_json=is_json)
    elif is_json:
        print_json({"internalId": batch.id, "page": batch.page})
    else:
        click.echo(batch.id)
        say(f"Its page is {batch.page}")


def _document(asked: Asked, service: client.BatchQueryService, connections: Connections = tuple) -> Mapping[str, Any]:
    return document(asked, lambda: {chain.name.casefold(): chain.chain_id for chain in service.chains()}, connections)


@click.command()
@with_question
@with_url
@with_json
def estimate(*, asked: Asked, url: str | None, is_json: bool) -> int:
    """Tell what it would cost and whether it would be taken. Nothing is stored.

    FILE and options are those of submit; chains may be left out where the service has one connection between them.
    Ends with exit code 1 if it would be rejected.
    """
    service = credentials.service(url)
    body = _document(
        asked, service, lambda: [(pair.origin_chain_id, pair.destination_chain_id) for pair in service.connections()]
    )
    found = service.estimate_body(body)
    if is_json:
        print_json(found)
    else:
        _print_estimate(found, currencies(service).get(int(body["destinationChainId"]), ""))
    return ExitCode.REJECTED if found.rejections else ExitCode.OK


def _print_estimate(found: client.Estimate, currency: str) -> None:
    print_fields(
        [
            ("gas", f"{found.gas.expected}, at most {found.gas.bound}"),
            ("cost", f"{cost(found.wei.expected, currency)}, at most {cost(found.wei.bound, currency)}"),
            ("transactions", found.transactions),
            ("blocks to done", found.blocks_to_done),
            ("seconds to done", found.seconds_to_done),
        ]
    )
    rows: list[tuple[object, ...]] = []
    for source in found.sources:
        rows.append((source.source_chain_id, "all", "", "", source.gas.expected, source.gas.bound))
        for name, part in source.parts.items():
            rows.append((source.source_chain_id, name, part.count, part.in_registry, part.gas.expected, part.gas.bound))
    print_table(("source", "part", "count", "there already", "gas", "at most"), rows, empty="Nothing is to be proven.")
    for wait in found.waits:
        say(wait)
    for rejection in found.rejections:
        say(f"It would be rejected ({rejection.code}): {rejection.error}")


@click.command()
@click.argument("batch")
@with_timeout
@with_url
@with_json
def watch(*, batch: str, timeout: float | None, url: str | None, is_json: bool) -> None:
    """Follow a BATCH until it is done, and print its facts."""
    service = credentials.service(url, patience=_WATCH_PATIENCE)
    _follow(service, service.batch(batch), timeout, is_json=is_json)


def _follow(service: client.BatchQueryService, batch: client.Batch, timeout: float | None, *, is_json: bool) -> None:
    with progress() as show:
        done = batch.wait(timeout, progress=show)
    if is_json:
        print_json(done)
    else:
        print_facts(done.facts, currencies(service))


@click.command()
@click.argument("batch", required=False)
@with_node("destination")
@click.option("--registry", metavar="ADDRESS", help="The facts registry that you rely on, for a batch of one source.")
@click.option(
    "--destination", "destination_chain_id", type=click.IntRange(min=1), metavar="CHAIN", help="Facts on this chain."
)
@click.option(
    "--chain", "source_chain_id", type=click.IntRange(min=1), metavar="CHAIN", help="Facts about this source chain."
)
@click.option("--account", metavar="ADDRESS", help="Facts of this account.")
@click.option("--block", type=click.IntRange(min=0), metavar="NUMBER", help="Facts at this block.")
@click.option("--property", "property_", metavar="NAME", help="Facts of this kind, such as BALANCE or SLOT.")
@click.option("--slot", metavar="HEX", help="Facts about this slot.")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="Of facts, without a BATCH.")
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
    """Print the facts of a BATCH, or those that others have had proven.

    With --rpc-url the facts of a batch are read from the chain itself, by calls that are made here; that they are what
    the service says is checked (exit code 7). Without a BATCH, the options say which facts to list.
    """
    service = credentials.service(url)
    given = {name.rstrip("_"): value for name, value in filters.items() if value is not None}
    if batch is None:
        if registry is not None:
            raise click.UsageError("--registry is for the facts of a batch.")
        facts, following = _pages(partial(service.facts, **given), "facts", limit)
        _print_read(service, facts, following, is_json=is_json)
        return
    if given:
        raise click.UsageError("Name either a batch or what facts to list.")
    of = service.batch(batch)
    if rpc_url is None:
        if registry is not None:
            raise click.UsageError("--registry needs --rpc-url.")
        _print_read(service, of.details().facts, is_json=is_json)
        return
    registries = None
    if registry is not None:
        sources = of.details().source_chain_ids
        if len(sources) != 1:
            raise click.UsageError("The batch has several source chains, and each has a registry of its own.")
        registries = {sources[0]: registry}
    _print_read(service, of.facts_on_chain(rpc_url, registries=registries), is_json=is_json)


def _print_read(
    service: client.BatchQueryService, facts: Sequence[client.Fact], following: str | None = None, *, is_json: bool
) -> None:
    if is_json:
        print_json({"facts": facts, "next": following})
    else:
        print_facts(facts, currencies(service))


def _pages(ask: Callable[..., Any], name: str, limit: int) -> tuple[list[Any], str | None]:
    """Return the first `limit` of a list that comes in pages, as which they have `name`; and the cursor to go on."""
    page = ask(limit=min(limit, _LARGEST_PAGE))
    found = [*getattr(page, name)]
    while page.next is not None and len(found) < limit:
        page = ask(limit=min(limit - len(found), _LARGEST_PAGE), cursor=page.next)
        found += getattr(page, name)
    return found, page.next


@click.command("list")
@click.option("--status", type=click.Choice(_STATUSES, case_sensitive=False), help="Batches of this status.")
@click.option(
    "--destination", "destination_chain_id", type=click.IntRange(min=1), metavar="CHAIN", help="Batches for this chain."
)
@click.option(
    "--chain", "source_chain_id", type=click.IntRange(min=1), metavar="CHAIN", help="Batches about this source chain."
)
@click.option("--account", metavar="ADDRESS", help="Batches that ask for this account.")
@click.option("--block", metavar="NUMBER", help="Batches that ask for this block.")
@click.option("--after", metavar="TIME", help="Batches made after a time, in seconds or ISO 8601.")
@click.option("--before", metavar="TIME", help="Batches made before it.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many at most.")
@with_url
@with_json
def list_batches(
    *, after: str | None, before: str | None, limit: int, url: str | None, is_json: bool, **filters: Any
) -> None:
    """List your batches, newest first."""
    given = {name: value for name, value in filters.items() if value is not None}
    if "block" in given:
        given["block"] = read_block(given["block"])
    for name, text in (("created_after", after), ("created_before", before)):
        if text is not None:
            given[name] = datetime.fromtimestamp(read_time(text), UTC)
    service = credentials.service(url)
    found, following = _pages(partial(service.batches, **given), "batch_queries", limit)
    if is_json:
        print_json({"batchQueries": found, "next": following})
        return
    rows = [
        (
            one.internal_id,
            one.status,
            f"{one.queries_completed}/{one.queries}",
            ",".join(map(str, one.source_chain_ids)),
            one.destination_chain_id,
            f"{one.created_at.astimezone(UTC):%Y-%m-%d %H:%M}",
            one.rejection.code if one.rejection else "",
        )
        for one in found
    ]
    print_table(("batch", "status", "queries", "sources", "destination", "made (UTC)", "rejected"), rows)


@click.command()
@click.argument("batch")
@with_url
@with_json
def cancel(*, batch: str, url: str | None, is_json: bool) -> None:
    """Cancel a BATCH that is not done. What was sent for it stays on the chain."""
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
@click.option("--most", type=read_amount, metavar="ETH", help="All of them together may not cost more.")
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
    """Send the transactions of a BATCH that you pay yourself (submit --pay-myself), until none is left.

    What the service asks for is signed only if it proves something to a facts registry.
    """
    if keystore is None:
        raise click.UsageError("Name the key file of the account that pays: --keystore.")
    service = credentials.service(url)
    names = currencies(service)
    payer = client.Payer(open_keystore(keystore, password_file), partial(_confirm, names, is_asked=not yes), most)
    sent = service.batch(batch).send(rpc_url, payer, timeout=timeout, progress=_said_once())
    if is_json:
        shown = [{"hash": one.hash, "what": one.what, "gasUsed": one.gas_used, "cost": str(one.cost)} for one in sent]
        print_json({"internalId": batch, "sent": shown})
        return
    rows = [(one.hash, one.gas_used, cost(one.cost, names.get(one.chain_id, "")), one.what) for one in sent]
    print_table(("transaction", "gas", "cost", "what"), rows)


def _confirm(names: Mapping[int, str], to_sign: client.ToSign, *, is_asked: bool) -> bool:
    """Say what is signed, and return whether the user agrees. `names` are the currencies, by chain."""
    most = cost(to_sign.most_wei, names.get(to_sign.chain_id, ""))
    say(f"{to_sign.what} To {to_sign.to}, {to_sign.gas} gas, at most {most}.")
    return not is_asked or click.confirm("Sign and send it?", err=True)


def _said_once() -> Any:
    """Return a function that tells each wait once."""
    said: set[str] = set()

    def tell(sending: client.Sending) -> None:
        for sentence in sending.waits:
            if sentence not in said:
                said.add(sentence)
                say(sentence)

    return tell


COMMANDS = (submit, estimate, watch, read, list_batches, cancel, send)
