"""Failures of the commands that send transactions of the operator's own."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.core.management.base import CommandError

from chains.chains_file import UnknownChain
from chains.configured_signers import SignerError
from chains.nodes.node_errors import ChainError
from proving.registries.creations import DeploymentError


@contextmanager
def told_in_a_sentence() -> Iterator[None]:
    """End the command with one sentence for what may go wrong on a chain, with its signer, or with its contracts."""
    try:
        yield
    except ChainError as error:
        raise CommandError(error.for_operators) from None
    except (DeploymentError, SignerError, UnknownChain) as error:
        raise CommandError(str(error)) from None
