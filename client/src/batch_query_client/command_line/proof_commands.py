"""Commands about proof bundles."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import click

import batch_query_client as client
from batch_query_client.command_line import credentials
from batch_query_client.command_line.options import read_hash, with_json, with_nodes, with_url
from batch_query_client.command_line.output import amount, print_fields, print_json, print_table, say
from batch_query_client.plain_text import hex_data
from batch_query_client.questions import NUMBERS

_BATCH = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}", re.ASCII)
_QUERY = click.option(
    "--query", type=click.IntRange(min=1), metavar="NUMBER", help="One query of a BATCH, instead of all."
)
# Of the queries whose times are not shown.
_MOST_LISTED = 10


@click.command()
@click.argument("batch")
@_QUERY
@click.option("-o", "--output", metavar="FILE", help="Where to write it; - is standard output.")
@with_url
def bundle(*, batch: str, query: int | None, output: str | None, url: str | None) -> None:
    """Fetch the proof bundle of a BATCH, or of one query: all that is needed to check its facts."""
    content = _fetched(batch, query, url)
    if output == "-":
        sys.stdout.buffer.write(content)
        return
    path = Path(output or f"proof-{batch}{'' if query is None else f'-{query}'}.json")
    path.write_bytes(content)
    say(f"The proof bundle is in {path}.")


def _fetched(batch: str, query: int | None, url: str | None) -> bytes:
    found = credentials.service(url, needs_key=False).batch(batch)
    return found.whole_bundle() if query is None else found.bundle(query)


@click.command()
@click.argument("bundle")
@_QUERY
@with_nodes("source")
@click.option(
    "--block-hash", type=read_hash, metavar="HASH", help="Instead: the hash of the block, from a source that you trust."
)
@click.option(
    "--next-block-hash", type=read_hash, metavar="HASH", help="And of the next one, where the query names a time."
)
@with_url
@with_json
def verify(
    *,
    bundle: str,
    query: int | None,
    rpc_url: tuple[str, ...],
    block_hash: str | None,
    next_block_hash: str | None,
    url: str | None,
    is_json: bool,
) -> None:
    """Check a proof BUNDLE, a file or that of a batch, without trusting the service.

    What is trusted are the hashes of blocks, which your own nodes tell (--rpc-url, one for each source chain), or you
    (--block-hash). From there each step is computed: header, state root, account, slots. Ends with exit code 7 if
    anything is not so.
    """
    is_file = Path(bundle).is_file() or not _BATCH.fullmatch(bundle)
    if is_file and query is not None:
        raise click.UsageError("--query works with a BATCH only: a file names its query.")
    proven: client.VerifiedBundle | client.VerifiedBatchBundle
    if not is_file and rpc_url and block_hash is None:
        batch = credentials.service(url).batch(bundle)
        proven = batch.verify_whole(*rpc_url) if query is None else batch.verify(_only(rpc_url), query)
    else:
        document = Path(bundle).read_bytes() if is_file else _fetched(bundle, query, url)
        if block_hash is not None:
            proven = _by_hash(document, block_hash, next_block_hash)
        else:
            proven = _by_nodes(document, rpc_url)
    if isinstance(proven, client.VerifiedBatchBundle):
        _print_batch(proven, is_json=is_json)
    else:
        _print_query(proven, is_json=is_json)


def _only(nodes: Sequence[str]) -> str:
    if len(nodes) > 1:
        raise click.UsageError("The bundle of one query is checked by one node: that of its source chain.")
    return nodes[0]


def _is_of_batch(document: bytes) -> bool:
    from batch_query_client.batch_bundles import is_of_batch  # noqa: PLC0415 (--help would wait for it)

    return is_of_batch(document)


def _by_hash(
    document: bytes, block_hash: str, next_block_hash: str | None
) -> client.VerifiedBundle | client.VerifiedBatchBundle:
    if not _is_of_batch(document):
        return client.verify_bundle(document, block_hash=block_hash, next_block_hash=next_block_hash)
    blocks = client.bundle_blocks(document)
    if len(blocks) != 1:
        raise click.UsageError(
            f"The bundle is about {len(blocks)} blocks: name nodes of yours (--rpc-url) instead of one hash."
        )
    ((chain, number),) = blocks
    hashes = {(chain, number): block_hash}
    if next_block_hash is not None:
        hashes[chain, number + 1] = next_block_hash
    return client.verify_batch_bundle(document, block_hashes=hashes)


def _by_nodes(document: bytes, nodes: Sequence[str]) -> client.VerifiedBundle | client.VerifiedBatchBundle:
    if not nodes:
        blocks = client.bundle_blocks(document)
        first, more = blocks[0] if blocks else (0, 0), len(blocks) - 1
        others = f", and those of {more} more" if more > 0 else ""
        raise click.UsageError(
            f"A bundle is checked against hashes that you trust, that of block {first[1]} of chain {first[0]}{others}: "
            "name a node of yours (--rpc-url), one of each source chain, or the hash (--block-hash)."
        )
    patience = client.Patience(credentials.patience_seconds())
    if _is_of_batch(document):
        return client.verify_batch_bundle_by_nodes(document, nodes, patience)
    return client.verify_bundle_by_node(document, _only(nodes), patience)


# --- What is shown ----------------------------------------------------------------------------------------------------


def _print_batch(proven: client.VerifiedBatchBundle, *, is_json: bool) -> None:
    if is_json:
        queries = [{"number": number} | _as_json(query) for number, query in proven.queries.items()]
        chain = str(proven.destination_chain_id)
        print_json({"batch": proven.batch, "destinationChainId": chain, "queries": queries})
        return
    many = f"{len(proven.queries)} quer{'y' if len(proven.queries) == 1 else 'ies'}"
    say(f"The bundle holds, with {many} of the batch {proven.batch}.")
    rows = [
        (number, query.source_chain_id, query.block_number, _about(query), ", ".join(_in_short(query)))
        for number, query in proven.queries.items()
    ]
    print_table(("query", "chain", "block", "account", "proven"), rows)
    not_shown = [f"{number}" for number, query in proven.queries.items() if _lacks_time(query)]
    if not_shown:
        shown = ", ".join(not_shown[:_MOST_LISTED]) + (", ..." if len(not_shown) > _MOST_LISTED else "")
        say(f"NOT shown of {len(not_shown)} queries: that their blocks were the latest at the times named ({shown}).")


def _in_short(proven: client.VerifiedBundle) -> list[str]:
    """List the proven values, those that are numbers in decimal."""
    numbers = NUMBERS if proven.account else NUMBERS - {"NONCE"}
    found = [
        f"{name} {_number(name, word) if name in numbers else hex_data(word)}" for name, word in proven.facts.items()
    ]
    found += [f"slot {int(slot, 16):#x} {hex_data(word)}" for slot, word in proven.slots.items()]
    if proven.timestamp is not None:
        found.append(f"latest at {proven.timestamp} s")
    return [*found, "NOT shown: its time"] if _lacks_time(proven) else found


def _number(name: str, word: bytes) -> str:
    value = int.from_bytes(word)
    return amount(value) if name == "BALANCE" else str(value)


def _lacks_time(proven: client.VerifiedBundle) -> bool:
    return proven.claimed_timestamp is not None and proven.timestamp is None


def _about(proven: client.VerifiedBundle) -> str:
    if proven.account is None:
        return "the block's header"
    return proven.account if proven.exists else f"{proven.account} (does not exist)"


def _as_json(proven: client.VerifiedBundle) -> dict[str, object]:
    return {
        "sourceChainId": str(proven.source_chain_id),
        "blockNumber": proven.block_number,
        "blockHash": proven.block_hash,
        "account": proven.account,
        "exists": proven.exists,
        "facts": proven.facts,
        "slots": proven.slots,
        "timestamp": proven.timestamp,
    }


def _print_query(proven: client.VerifiedBundle, *, is_json: bool) -> None:
    if is_json:
        print_json(_as_json(proven))
        return
    rows: list[tuple[str, object]] = [
        ("chain", proven.source_chain_id),
        ("block", f"{proven.block_number}  {proven.block_hash}"),
        ("account" if proven.account else "about", _about(proven)),
        *((name, f"{hex_data(word)}  {_number(name, word)}") for name, word in proven.facts.items()),
        *((f"slot {slot}", hex_data(word)) for slot, word in proven.slots.items()),
    ]
    if proven.timestamp is not None:
        rows.append(("latest at", f"{proven.timestamp} s"))
    say("The bundle holds.")
    print_fields(rows)
    if _lacks_time(proven):
        say(f"NOT shown: that this block was the latest at the time {proven.claimed_timestamp}.")


COMMANDS = (bundle, verify)
