"""Options that several commands share."""

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import click

from batch_query_client.command_line.asked_in_files import BatchOptions

Command = TypeVar("Command", bound=Callable[..., Any])

with_json = click.option("--json", "is_json", is_flag=True, help="Print output and errors as JSON, for programs.")
with_url = click.option("--url", metavar="URL", help="The service, instead of the one of the last login (BQS_URL).")
with_timeout = click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="End with exit code 3 if the batch is not done after this time.",
)


_HASH = re.compile(r"0x[0-9a-fA-F]{64}", re.ASCII)
_AMOUNT = re.compile(r"([0-9]{1,60})(?:\.([0-9]{1,18}))?|([0-9]{1,78})\s*wei", re.ASCII | re.IGNORECASE)
# Maximum whole units. A larger number counts as wei, as in scripts for earlier versions of `bqs`.
_MOST_UNITS = 10**6


def read_amount(text: str) -> int:
    """Return an amount in wei. The text is in whole units of a chain's currency, or in wei, such as 5000wei.

    Raises `click.BadParameter`.
    """
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        raise click.BadParameter(f"{text!r} is no amount: it is in ETH, such as 0.002, or in wei, such as 5000wei.")
    units, fraction, wei = match.groups()
    if wei:
        return int(wei)
    if int(units) > _MOST_UNITS:
        raise click.BadParameter(f"{text} ETH can't be meant; an amount in wei is written {units}wei.")
    return int(units + (fraction or "").ljust(18, "0"))


def read_hash(text: str) -> str:
    """Read a block's hash. Raises `click.BadParameter`."""
    if not _HASH.fullmatch(text):
        raise click.BadParameter("A block's hash is 0x and 64 hexadecimal digits.")
    return text.lower()


def read_fee(text: str) -> str:
    """Return the fee for the API: an amount in wei, or auto. Raises `click.BadParameter`."""
    return text if text == "auto" else str(read_amount(text))


def chain_option(*names: str, **how: Any) -> Callable[[Command], Command]:
    """Return an option that takes the id of a chain."""
    return click.option(*names, type=click.IntRange(min=1), metavar="CHAIN", **how)


def with_node(chain: str, **how: Any) -> Callable[[Command], Command]:
    """Add the option for nodes of the source or destination chain.

    In the environment variable, spaces separate nodes.
    """
    say = f"A node of the {chain} chain that you trust."
    return click.option("--rpc-url", envvar="BQS_RPC_URL", show_envvar=True, metavar="URL", help=say, **how)


def with_keystore(command: Command) -> Command:
    keystore = click.option(
        "--keystore",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="An Ethereum key file (Web3 Secret Storage), as geth and cast make.",
    )
    password = click.option(
        "--password-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="The file with its password. Without it, you are asked for the password.",
    )
    return keystore(password(command))


def with_question(command: Command) -> Command:
    """Add the options that describe queries. The command receives them as `BatchOptions`."""

    def call(**options: Any) -> Any:
        # A field with a default value is an option of some commands only.
        values = {field.name: options.pop(field.name, field.default) for field in fields(BatchOptions)}
        batch_options = BatchOptions(**values)
        return command(options=batch_options, **options)

    call.__name__, call.__doc__ = command.__name__, command.__doc__
    decorated: Any = call
    decorated.__click_params__ = getattr(command, "__click_params__", [])
    for option in reversed(_QUESTION):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return] # the command has another signature


def _several(option: str, name: str, metavar: str, about: str, **how: Any) -> Callable[[Command], Command]:
    return click.option(option, name, multiple=True, metavar=metavar, help=about, **how)


with_base = click.option(
    "--base",
    metavar="SLOT",
    help="A hint where the layout begins: a slot, or a namespace such as erc7201:example.main.",
)

_QUESTION = (
    click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, allow_dash=True)),
    chain_option("--destination", help="The chain where the facts become readable."),
    chain_option("--chain", help="The source chain."),
    click.option(
        "--block",
        metavar="BLOCK",
        help="A number, latest or finalized. A transaction's hash already selects its block.",
    ),
    click.option("--time", metavar="TIME", help="Instead: the latest block at a time, in seconds or ISO 8601."),
    _several(
        *("--account", "accounts", "ADDRESS"),
        "An address or an ENS name. May be repeated. An old block needs an archive node.",
    ),
    _several(
        *("--prop", "props", "NAME"),
        "BALANCE, NONCE, STORAGE_ROOT or CODE_HASH of accounts; STATUS, TYPE, CUMULATIVE_GAS_USED, LOG_COUNT or HASH "
        "of transactions. May be repeated.",
    ),
    _several(
        *("--slot", "slots", "HEX"),
        "A storage slot, or HEX:KEY:KEY for a value of a mapping, or a name as the API's JSON. May be repeated.",
    ),
    click.option("--token", metavar="ADDRESS", help="A token: bqs finds the slot of the holder's balance."),
    _several(
        *("--holder", "holders", "ADDRESS"),
        "A holder of the token, by its address and not its ENS name. May be repeated.",
    ),
    with_base,
    _several(
        *("--transaction", "transactions", "HASH_OR_INDEX"),
        "A transaction by its hash, or its index in the block. May be repeated.",
    ),
    _several(
        *("--log", "logs", "INDEX"),
        "The index of a log in each transaction's receipt, from 0. May be repeated.",
        type=click.IntRange(min=0),
    ),
    _several(
        *("--block-log", "block_logs", "INDEX"),
        "The index of a log in the block, as a node's logIndex. May be repeated.",
        type=click.IntRange(min=0),
    ),
    _several("--header", "header", "NAME", "A property of the block's header. May be repeated."),
    click.option(
        "--fee",
        type=read_fee,
        metavar="ETH",
        help="Maximum cost, or auto (the default): the estimate's upper bound.",
    ),
    click.option(
        "--pay-myself", "is_paid_by_caller", is_flag=True, help="Send the transactions yourself, with `bqs send`."
    ),
    click.option("--webhook", metavar="URL", help="URL to which the service sends the batch's events."),
    click.option(
        "--webhook-event",
        "webhook_events",
        multiple=True,
        type=click.Choice(["DONE", "REJECTED", "WENT_BACK", "STEP"]),
        help="An event to send. May be repeated. Default: DONE, REJECTED, WENT_BACK.",
    ),
)
