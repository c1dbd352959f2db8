"""Commands about proof bundles."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

import batch_query_client as client
from batch_query_client.command_line import credentials
from batch_query_client.command_line.options import read_hash, with_json, with_node, with_url
from batch_query_client.command_line.output import amount, log_content, print_json, print_table, say, slot_in_words
from batch_query_client.plain_text import hex_data
from batch_query_client.questions import NUMBERS

_BATCH = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}", re.ASCII | re.IGNORECASE)
_QUERY = click.option(
    "--query", type=click.IntRange(min=1), metavar="NUMBER", help="One query of a BATCH, instead of all."
)


@click.command()
@click.argument("batch")
@_QUERY
@click.option("-o", "--output", metavar="FILE", help="The file to write; - is standard output.")
@with_url
def bundle(*, batch: str, query: int | None, output: str | None, url: str | None) -> None:
    """Fetch the proof bundle of a BATCH or of one query. Anybody can check the facts with it."""
    content = _fetched(batch, query, url)
    if output == "-":
        sys.stdout.buffer.write(content)
        return
    path = Path(output or f"proof-{batch}{'' if query is None else f'-{query}'}.json")
    path.write_bytes(content)
    say(f"The proof bundle is in {path}.")


def _fetched(batch: str, query: int | None, url: str | None) -> bytes:
    return credentials.service(url, needs_key=False).batch(batch).bundle(query)


@click.command()
@click.argument("bundle")
@_QUERY
@with_node("source", multiple=True)
@click.option(
    "--block-hash",
    type=read_hash,
    metavar="HASH",
    multiple=True,
    help="Instead: a block's hash, from a source that you trust. May be repeated, once for each block.",
)
@with_url
@with_json
def verify(
    *,
    bundle: str,
    query: int | None,
    rpc_url: tuple[str, ...],
    block_hash: tuple[str, ...],
    url: str | None,
    is_json: bool,
) -> None:
    """Check a proof BUNDLE (a file or a batch's identifier) without trusting the service.

    Only block hashes are trusted. They come from your own nodes (--rpc-url, one for each source chain), or from you
    (--block-hash). All other steps are computed: header, roots, account, slots, receipt, logs. The exit code is 7 if a
    step fails. Without hashes, the command lists the hashes that it needs.
    """
    is_file = Path(bundle).is_file() or not _BATCH.fullmatch(bundle)
    if is_file and query is not None:
        raise click.UsageError("--query works with a BATCH only: a file names its query.")
    if not is_file and rpc_url and not block_hash:
        proven = credentials.service(url).batch(bundle).verify(*rpc_url, number=query)
    else:
        document = Path(bundle).read_bytes() if is_file else _fetched(bundle, query, url)
        if block_hash:
            trusted = {block: hash_ for block, hash_ in client.claimed_hashes(document).items() if hash_ in block_hash}
            proven = client.verify_bundle(document, block_hashes=trusted)
        elif rpc_url:
            patience = client.Patience(credentials.patience_seconds())
            proven = client.verify_bundle_by_nodes(document, rpc_url, patience)
        else:
            claimed = [
                f"  chain {chain}  block {block}  {claimed_hash}"
                for (chain, block), claimed_hash in client.claimed_hashes(document).items()
            ]
            request = (
                "Name a node of each source chain (--rpc-url), or hashes that you trust (--block-hash). Needed are:"
            )
            raise click.UsageError("\n".join([request, *claimed]))
    if is_json:
        from pydantic.alias_generators import to_camel  # noqa: PLC0415 (slow to load, and --help doesn't need it)

        queries = [
            {to_camel(name): value for name, value in vars(query).items()}
            | {"number": number, "sourceChainId": str(query.source_chain_id)}
            for number, query in proven.queries.items()
        ]
        print_json({"batch": proven.batch, "destinationChainId": str(proven.destination_chain_id), "queries": queries})
    else:
        _print(proven)


# --- Output -----------------------------------------------------------------------------------------------------------


def _print(proven: client.VerifiedBundle) -> None:
    print_table(
        ("query", "chain", "block", "account", "proven"),
        [
            (number, query.source_chain_id, query.block_number, _about(query), ", ".join(_in_short(query)))
            for number, query in proven.queries.items()
        ],
    )
    say(f"Everything checked is correct, for the batch {proven.batch}.")


def _about(proven: client.VerifiedQuery) -> str:
    if proven.transaction is not None:
        return f"transaction {proven.transaction} {proven.transaction_hash or ''}".rstrip()
    if proven.account is None:
        return "the block's header"
    return proven.account if proven.exists else f"{proven.account} (does not exist)"


def _in_short(proven: client.VerifiedQuery) -> list[str]:
    """Return the proven values as words. Numbers are in decimal."""
    numbers = NUMBERS if proven.account else NUMBERS - {"NONCE"}
    values = [
        f"{name} {_number(name, word) if name in numbers else hex_data(word)}" for name, word in proven.facts.items()
    ]
    values += [f"{slot_in_words(slot)} {hex_data(word)}" for slot, word in proven.slots.items()]
    values += [f"log {index} {log_content(log)}" for index, log in proven.logs.items()]
    if proven.claimed_timestamp is not None:
        latest = f"latest at {proven.claimed_timestamp} s"
        values.append(f"Not checked: {latest}" if proven.timestamp is None else latest)
    return values


def _number(name: str, word: bytes) -> str:
    value = int.from_bytes(word)
    return amount(value) if name == "BALANCE" else str(value)


COMMANDS = (bundle, verify)
