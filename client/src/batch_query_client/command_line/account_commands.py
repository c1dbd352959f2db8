"""Commands about keys and about the command line itself."""

import os
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import get_completion_class

import batch_query_client as client
from batch_query_client.command_line import credentials
from batch_query_client.command_line.keystores import open_keystore
from batch_query_client.command_line.options import with_json, with_keystore, with_url
from batch_query_client.command_line.output import print_json, print_table, say

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

    from batch_query_client.signing_in import Sign

# No batch has this identifier. A request for it shows whether a key works.
_NO_BATCH = "0" * 26


@click.command()
@click.argument("url", required=False)
@with_keystore
@click.option("--chain", type=click.IntRange(min=1), help="The chain of a contract wallet.")
@click.option("--name", default=lambda: f"bqs on {platform.node()}"[:50], help="Name of the new key.")
@click.option("--no-browser", is_flag=True, help="Print the dashboard's address instead of opening it.")
def login(
    *,
    url: str | None,
    keystore: Path | None,
    password_file: Path | None,
    chain: int | None,
    name: str,
    no_browser: bool,
) -> None:
    """Take an API key, and remember it for the service at URL.

    Without --keystore, it opens the service's dashboard, where you copy a key, and asks for the key. With --keystore it
    signs in by itself (Sign in with Ethereum) and makes a key. A key may also come by standard input.

    The key is kept in this system's keyring. If there is none, it is kept in a file that only you may read.
    """
    at = credentials.service_url(url)
    if credentials.is_exposed(at):
        say(f"{at} is not https: others on the network path can read the key.")
    if keystore is not None:
        account = open_keystore(keystore, password_file)
        key = client.sign_in(at, address=account.address, sign=_signer(account), chain_id=chain, name=name)
    elif sys.stdin.isatty():
        dashboard = f"{at}/dashboard"
        if no_browser or click.launch(dashboard) != 0:
            say(f"Open {dashboard} in a browser and copy a key.")
        else:
            say(f"Copy a key from {dashboard}, which opens in your browser.")
        key = click.prompt("API key", hide_input=True, err=True).strip()
    else:
        key = sys.stdin.readline().strip()
    if not key:
        raise click.UsageError("There was no key on standard input.")
    _check_key(at, key)
    say(f"The key works. It is now in {credentials.remember(at, key)}.")


def _signer(account: "LocalAccount") -> "Sign":
    from eth_account.messages import encode_defunct  # noqa: PLC0415 (slow to load, and only keystores need it)

    def sign(text: str) -> str:
        return str(account.sign_message(encode_defunct(text=text)).signature.to_0x_hex())

    return sign


def _check_key(url: str, key: str) -> None:
    """Send a request with the key. Raises `Unauthorized` if the key doesn't work."""
    try:
        patience = client.Patience(credentials.patience_seconds())
        client.BatchQueryService(url, api_key=key, patience=patience).batch(_NO_BATCH).status()
    except client.NotFound:
        return


@click.command()
@with_url
def logout(*, url: str | None) -> None:
    """Forget the key. It still works until it is revoked on the page of keys."""
    at = credentials.service_url(url)
    credentials.forget(at)
    say(f"The key for {at} is no longer stored here. It works until you revoke it at {at}/keys.")


@click.command()
@with_url
@with_json
def chains(*, url: str | None, is_json: bool) -> None:
    """List the source chains whose facts can be proven, by destination chain."""
    service = credentials.service(url, needs_key=False)
    connections, known = service.connections(), service.chains()
    if is_json:
        print_json({"connections": connections, "chains": known})
        return
    names = {chain.chain_id: f"{chain.name} ({chain.chain_id})" for chain in known}
    rows = [
        [names.get(chain, chain) for chain in (pair.origin_chain_id, pair.destination_chain_id)] for pair in connections
    ]
    print_table(("source", "destination"), rows, empty="This service can't prove anything.")


@click.command()
@click.argument("shell", required=False, type=click.Choice(["bash", "zsh", "fish"]))
def completion(*, shell: str | None) -> None:
    """Print the script that completes commands in a SHELL: bash, zsh or fish.

    For bash: bqs completion bash >> ~/.bashrc
    """
    name = shell or Path(os.environ.get("SHELL", "bash")).name
    completion_class = get_completion_class(name)
    if completion_class is None:
        raise click.UsageError(f"There is no completion for {name}. There is for bash, zsh and fish.")
    root = click.get_current_context().find_root().command
    click.echo(completion_class(root, {}, "bqs", "_BQS_COMPLETE").source())


COMMANDS = (login, logout, chains, completion)
