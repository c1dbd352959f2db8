"""Set up and run the service on Sepolia and OP Sepolia, for `make testnet`.

Each step prints its result, and is skipped if it is done, so the command may be stopped and run again. Missing values
are taken from the environment, or asked for on standard input. Typed text isn't shown. Secrets are stored only in
`secrets/`.
"""

import argparse
import getpass
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from chains.configured_signers import SignerError, SignerKey
from chains.file_values import is_http_url
from config.private_files import new_private_file
from devnet.ports import PortInUse, chosen_port

PROJECT = Path(__file__).resolve().parents[2]

CHAINS_FILE = "dev/tools/chains.sepolia.toml"
SEPOLIA, OP_SEPOLIA = 11155111, 11155420
NAMES = {SEPOLIA: "Sepolia", OP_SEPOLIA: "OP Sepolia"}
# Variables in CHAINS_FILE, each with its chain and default URL.
NODES = {"SEPOLIA_RPC_URL": (SEPOLIA, ""), "OP_SEPOLIA_RPC_URL": (OP_SEPOLIA, "https://sepolia.optimism.io")}
# The variable of a beacon node of Sepolia, which is optional.
BEACON = "SEPOLIA_BEACON_URL"
# Places that give test money, and their price.
FAUCETS = {
    SEPOLIA: """\
  https://sepolia-faucet.pk910.de (minutes of your processor)
  https://cloud.google.com/application/web3/faucet/ethereum/sepolia (an account)
  https://faucet.quicknode.com/ethereum/sepolia (an account)""",
    OP_SEPOLIA: """\
  https://console.optimism.io/faucet (a sign-in)
  https://faucet.quicknode.com/optimism (an account)""",
}
PORT = 8000
# Seconds between checks of the signer's balance.
POLL_SECONDS = 5
# Seconds between reminders that the signer's balance is too low.
TELL_SECONDS = 120

# Beginnings of sentences of `check_chains`: the signer has too little money, or enough.
_LACKING, _COSTS = "To begin on ", "On "

# Each line is flushed, so that it appears immediately in a pipe too.
say = partial(print, flush=True)


class TestnetError(Exception):
    """The set-up can't continue. The message is one sentence."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make testnet", description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=PROJECT, help=f"of {CHAINS_FILE}, secrets and state")
    parser.add_argument("--port", help=f"of the web server (make testnet PORT=...); by default {PORT}")
    parser.add_argument("--wait-minutes", type=float, default=30, help="for the signer's money (%(default)g)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    testnet = Testnet(options.folder.resolve(), options.port)
    try:
        testnet.run(options.wait_minutes * 60)
    except (KeyboardInterrupt, EOFError):  # Ctrl-C, and Ctrl-D at a question
        say(f"\nStopped. This goes on from here: {testnet.command}")
    except (TestnetError, PortInUse) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


class Testnet:
    """An installation in the folder that has CHAINS_FILE."""

    def __init__(self, folder: Path, port: str | None) -> None:
        self.port, self.command = port, f"make testnet{f' PORT={port}' if port else ''}"
        self.secrets, self.state = folder / "secrets", folder / ".testnet"
        self.environment: dict[str, str] = {
            **os.environ,
            "CHAINS_FILE": str(folder / CHAINS_FILE),
            "STATE_DIR": str(self.state),
        }

    def run(self, wait_seconds: float) -> None:
        """Do all steps, then replace this process by the web server and the worker."""
        for name, (chain_id, default) in NODES.items():
            try:
                self._node(name, chain_id, default)
            except TestnetError as error:
                if chain_id == SEPOLIA:  # the facts are about it
                    raise
                say(error, f"Going on without {NAMES[chain_id]}. To try it again: {self.command}", sep="\n")
        self._beacon(is_first=self._key())
        self._migrate()
        self._deploy(wait_seconds)
        self._serve(chosen_port("PORT", self.port, PORT))

    # --- Nodes --------------------------------------------------------------------------------------------------------

    def _node(self, name: str, chain_id: int, default: str) -> None:
        """Set the URL of a usable node: from the environment, from an earlier run, or typed now."""
        kept = self.secrets / name.lower()
        is_given = bool(os.environ.get(name) or os.environ.get(f"{name}_FILE"))
        is_kept = kept.exists() and not is_given
        if is_kept:
            self.environment[f"{name}_FILE"] = str(kept)
        elif not is_given:
            question = f"URL of a node of {NAMES[chain_id]}{f' (Enter: {default})' if default else ''}: "
            self.environment[name] = _ask(question, name) or default
        output, refused = self._manage("check_chains", "--node", f"${{{name}}}")
        # A node of a destination needn't serve proofs.
        if not refused or (chain_id == OP_SEPOLIA and refused.startswith("no_proofs: ")):
            first_line, *lines = output.splitlines()
            refused = (
                "" if first_line == f"A node of chain {chain_id}" else f"{first_line}, and not of chain {chain_id}."
            )
        if refused:
            remedy = f" Remove {kept} to be asked for another one." if is_kept else ""
            raise TestnetError(f"{name} can't be used. {refused}{remedy}")
        if not is_given and not is_kept:
            with new_private_file(kept) as draft:
                draft.write_text(self.environment.pop(name))
            self.environment[f"{name}_FILE"] = str(kept)
        say(f"{name}: {'from the environment' if is_given else f'kept in {kept}'}.", *lines, sep="\n")

    # --- Key ----------------------------------------------------------------------------------------------------------

    def _key(self) -> bool:
        """Make sure that there is a keystore for the signer, with its password file. Return whether it is new."""
        keystore, password = self.secrets / "testnet.json", self.secrets / "testnet.password"
        if keystore.exists():
            # The keystore is tested before anyone sends money to its address, because an unreadable key can't spend it.
            try:
                account = SignerKey(keystore_file=keystore, password_file=password).account()
            except SignerError as error:
                raise TestnetError(str(error)) from None
            say(f"Signer: {account.address}, kept in {keystore}.")
            return False
        if not password.exists() and (
            chosen := _ask("Passphrase for the signer's new key (Enter: a random one): ", "")
        ):
            with new_private_file(password) as draft:
                draft.write_text(chosen)
        address = self._must("make_keystore", str(keystore), str(password)).strip()
        say(f"Signer: {address}, a new key in {keystore}, whose passphrase is in {password}.")
        return True

    # --- Beacon node --------------------------------------------------------------------------------------------------

    def _beacon(self, *, is_first: bool) -> None:
        """Configure a beacon node: from the environment, from an earlier run, or typed in the first run."""
        kept = self.secrets / BEACON.lower()
        is_given = bool(os.environ.get(BEACON) or os.environ.get(f"{BEACON}_FILE"))
        if not is_given:
            if is_first and (typed := _ask("URL of a beacon node of Sepolia, for old blocks (Enter: none): ", "")):
                if not is_http_url(typed):
                    raise TestnetError(f"{BEACON} can't be used. It must be an http or https URL.")
                with new_private_file(kept) as draft:
                    draft.write_text(typed)
            if not kept.exists():
                return
            self.environment[f"{BEACON}_FILE"] = str(kept)
        self.state.mkdir(mode=0o700, exist_ok=True)
        chains = self.state / "chains.toml"
        # The copy is one folder nearer to the secrets.
        written = Path(self.environment["CHAINS_FILE"]).read_text().replace('"../../secrets/', '"../secrets/')
        node = f'beacon_urls = ["${{{BEACON}}}"]'
        chains.write_text(re.sub(r'(\nrpc_urls = \["\$\{SEPOLIA_RPC_URL\}"\].*)', rf"\1\n{node}", written))
        self.environment["CHAINS_FILE"] = str(chains)
        say(f"{BEACON}: {'from the environment' if is_given else f'kept in {kept}'}. Chains: in {chains}.")

    # --- Contracts ----------------------------------------------------------------------------------------------------

    def _migrate(self) -> None:
        self.state.mkdir(mode=0o700, exist_ok=True)
        self._must("migrate", "--no-input", "-v", "0")
        self._must("collectstatic", "--no-input", "-v", "0")
        say(f"Database and pages: in {self.state}.")
        if Path(self.environment["CHAINS_FILE"]).parent == self.state:
            lines = self._manage("check_chains")[0].splitlines()
            say(*(line.strip() for line in lines if line.startswith("  Beacon node ")), sep="\n")

    def _deploy(self, wait_seconds: float) -> None:
        """Deploy the registries for Sepolia's facts where the signer has money. Wait until there is one at least."""
        began, reminded_at = time.monotonic(), -math.inf
        left, is_there = [SEPOLIA, OP_SEPOLIA], False
        while left and not is_there:
            # The amounts change with the gas price at each check.
            costs = self._costs()
            for destination in [*left]:
                if not costs[destination].startswith(_LACKING):
                    left.remove(destination)
                    is_there |= self._is_deployed(destination, costs[destination])
            if left and (is_there or time.monotonic() - reminded_at > TELL_SECONDS):
                say(*(f"{costs[destination]} Faucets:\n{FAUCETS[destination]}" for destination in left), sep="\n")
                reminded_at = time.monotonic()
            if left and not is_there:
                if time.monotonic() - began >= wait_seconds:
                    raise TestnetError(f"The money is not there yet. When it is, run this again: {self.command}")
                time.sleep(POLL_SECONDS)
        if not is_there:
            raise TestnetError(f"There is no facts registry, so nothing can be served. To try it again: {self.command}")
        for destination in left:
            # A user who submits such a batch must know why the batch waits.
            say(f"Batches for {NAMES[destination]} are accepted, and wait until there is money, and you run:")
            say(f"  {self.command}")

    def _is_deployed(self, destination: int, costs: str) -> bool:
        """Deploy a registry, and return whether it can be used. Otherwise print why, and the command that failed."""
        say(f"Facts of {NAMES[SEPOLIA]} on {NAMES[destination]}: deploying what is missing ...", *filter(None, [costs]))
        arguments = "deploy_registry", str(destination), str(SEPOLIA)
        output, refused = self._manage(*arguments)
        say(refused or output.strip())
        if refused:
            say(f"Batches for {NAMES[destination]} wait until this works: {self._whole(*arguments)}")
        return not refused

    def _costs(self) -> dict[int, str]:
        """Return the sentences of `check_chains` about what the signer needs to begin on each destination.

        A sentence is empty where all is deployed.
        """
        output, _ = self._manage("check_chains")
        lines = [line.strip() for line in output.splitlines()]
        return {
            chain: next((line for line in lines if line.startswith((_LACKING, _COSTS)) and f"({chain})" in line), "")
            for chain in NAMES
        }

    # --- Servers ------------------------------------------------------------------------------------------------------

    def _serve(self, port: int) -> None:
        """Replace this process by `tools/run.py`."""
        place = f"127.0.0.1:{port}"
        say(f"Serving until Ctrl-C: http://{place}/new-batch")
        command = [sys.executable, str(PROJECT / "dev" / "tools" / "run.py"), "--bind", place]
        os.execve(sys.executable, command, {**self.environment, "BASE_URL": f"http://{place}"})

    def _must(self, *arguments: str) -> str:
        output, refused = self._manage(*arguments)
        if refused:
            raise TestnetError(f"{refused} The command was: {self._whole(*arguments)}")
        return output

    def _whole(self, *arguments: str) -> str:
        """Return a command of manage.py as it may be typed anywhere, without secrets."""
        changed = {name: value for name, value in self.environment.items() if os.environ.get(name) != value}
        variables = [f"{name}={shlex.quote(value)}" for name, value in changed.items() if name not in NODES]
        return " ".join([*variables, shlex.join([sys.executable, str(PROJECT / "manage.py"), *arguments])])

    def _manage(self, *arguments: str) -> tuple[str, str]:
        """Return the output of a command of manage.py, and its last line if it fails."""
        done = subprocess.run(
            [sys.executable, str(PROJECT / "manage.py"), *arguments],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        lines = done.stderr.strip().splitlines() or ["it said nothing"]
        return done.stdout, lines[-1].removeprefix("CommandError: ") if done.returncode else ""


def _ask(question: str, name: str) -> str:
    """Ask on the terminal without showing the answer. Without a terminal, read a line of standard input."""
    if sys.stdin.isatty():
        return getpass.getpass(question).strip()
    line = sys.stdin.readline()
    if not line and name:
        raise TestnetError(f"{name} is missing: set it in the environment, or run this on a terminal.")
    return line.strip()


if __name__ == "__main__":
    sys.exit(main())
