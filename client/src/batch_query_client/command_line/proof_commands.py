"""Commands about proof bundles."""

import re
import sys
from pathlib import Path

import click

from batch_query_client import Patience, VerifiedBundle, bundle_block, verify_bundle, verify_bundle_by_node
from batch_query_client.answers import hex_data
from batch_query_client.command_line import credentials
from batch_query_client.command_line.options import with_json, with_node, with_url
from batch_query_client.command_line.output import print_fields, print_json, say

_BATCH = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}", re.ASCII)
_QUERY = click.option("--query", type=click.IntRange(min=1), default=1, show_default=True, help="Its number.")


@click.command()
@click.argument("batch")
@_QUERY
@click.option("-o", "--output", metavar="FILE", help="Where to write it; - is standard output.")
@with_url
def bundle(*, batch: str, query: int, output: str | None, url: str | None) -> None:
    """Fetch the proof bundle of a query of a BATCH: all that is needed to check its facts."""
    content = credentials.service(url, needs_key=False).batch(batch).bundle(query)
    if output == "-":
        sys.stdout.buffer.write(content)
        return
    path = Path(output or f"proof-{batch}-{query}.json")
    path.write_bytes(content)
    say(f"The proof bundle is in {path}.")


@click.command()
@click.argument("bundle")
@_QUERY
@with_node("source")
@click.option("--block-hash", metavar="HASH", help="Instead: the hash of the block, from a source that you trust.")
@click.option("--next-block-hash", metavar="HASH", help="And of the next one, where the query names a time.")
@with_url
@with_json
def verify(
    *,
    bundle: str,
    query: int,
    rpc_url: str | None,
    block_hash: str | None,
    next_block_hash: str | None,
    url: str | None,
    is_json: bool,
) -> None:
    """Check a proof BUNDLE, a file or that of a batch, without trusting the service.

    The one thing that is trusted is the block's hash, which your own node tells (--rpc-url), or you (--block-hash).
    From there each step is computed: header, state root, account, slots. Ends with exit code 7 if anything is not so.
    """
    if Path(bundle).is_file() or not _BATCH.fullmatch(bundle):
        document = Path(bundle).read_bytes()
    elif rpc_url is not None and block_hash is None:
        proven = credentials.service(url).batch(bundle).verify(rpc_url, query)
        _print_verified(proven, is_json=is_json)
        return
    else:
        document = credentials.service(url, needs_key=False).batch(bundle).bundle(query)
    if block_hash is not None:
        proven = verify_bundle(document, block_hash=block_hash, next_block_hash=next_block_hash)
    elif rpc_url is not None:
        proven = verify_bundle_by_node(document, rpc_url, Patience(credentials.patience_seconds()))
    else:
        chain, number = bundle_block(document)
        raise click.UsageError(
            f"A bundle is checked against a hash that you trust, that of block {number} of chain {chain}: name a node "
            "of yours (--rpc-url), or the hash (--block-hash)."
        )
    _print_verified(proven, is_json=is_json)


def _print_verified(proven: VerifiedBundle, *, is_json: bool) -> None:
    if is_json:
        print_json(
            {
                "sourceChainId": str(proven.source_chain_id),
                "blockNumber": proven.block_number,
                "blockHash": proven.block_hash,
                "account": proven.account,
                "exists": proven.exists,
                "facts": proven.facts,
                "slots": proven.slots,
                "timestamp": proven.timestamp,
            }
        )
        return
    about = "the block's header" if proven.account is None else proven.account
    rows: list[tuple[str, object]] = [
        ("chain", proven.source_chain_id),
        ("block", f"{proven.block_number}  {proven.block_hash}"),
        (
            "account" if proven.account else "about",
            about if proven.exists or not proven.account else f"{about} (does not exist)",
        ),
        *((name, f"{hex_data(word)}  {int.from_bytes(word)}") for name, word in proven.facts.items()),
        *((f"slot {slot}", hex_data(word)) for slot, word in proven.slots.items()),
    ]
    if proven.timestamp is not None:
        rows.append(("latest at", f"{proven.timestamp} s"))
    say("The bundle holds.")
    print_fields(rows)
    if proven.claimed_timestamp is not None and proven.timestamp is None:
        say(f"NOT shown: that this block was the latest at the time {proven.claimed_timestamp}.")


COMMANDS = (bundle, verify)
