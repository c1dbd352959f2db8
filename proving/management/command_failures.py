"""Failures of operators' commands, each told in a sentence."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.core.management.base import CommandError
from django.db import DatabaseError, InterfaceError

from chains.chains_file import UnknownChain
from chains.configured_signers import SignerError
from chains.nodes.node_errors import ChainError
from config.error_answers import why_unavailable
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
    except (DatabaseError, InterfaceError) as error:
        if (why := why_unavailable(error)) is None:
            raise
        raise CommandError(f"{why} Run the command again later.") from None
