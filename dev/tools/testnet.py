"""Set up and run the service on Sepolia and OP Sepolia, for `make testnet`.

Each step prints its result, and is skipped if it is done, so the command may be stopped and run again. Missing values
are taken from the environment, or asked for on standard input. On a terminal, the command asks again for a node that
can't be used. Typed text isn't shown. Secrets are stored only in `secrets/`.
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
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from chains.configured_signers import SignerError, SignerKey
from chains.file_values import is_http_url, variable
from config.private_files import new_private_file
from devnet.ports import PortInUse, chosen_port

PROJECT = Path(__file__).resolve().parents[2]

CHAINS_FILE = "dev/tools/chains.sepolia.toml"
SEPOLIA, OP_SEPOLIA = 11155111, 11155420
NAMES = {SEPOLIA: "Sepolia", OP_SEPOLIA: "OP Sepolia"}
# Variables in CHAINS_FILE, each with its chain and default URL.
NODES = {"SEPOLIA_RPC_URL": (SEPOLIA, ""), "OP_SEPOLIA_RPC_URL": (OP_SEPOLIA, "https://sepolia.optimism.io")}
# The variable of a beacon node of Sepolia, which is optional, and its value if there is none.
BEACON, NONE = "SEPOLIA_BEACON_URL", "none"
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

# Beginnings of sentences of `check_chains`: the signer has too little money, or enough, or the registry is there.
_LACKING, _COSTS, _IS_THERE = "To begin on ", "On ", "The facts registry "
# The advice after a refused URL.
_ANOTHER = "Type another one, or stop with Ctrl-C. docs/operating/test-network.md says where nodes come from."

# The beginning of a line of the service's log.
_LOGGED = re.compile(r"\d{4}-\d\d-\d\d ")

# Each line is flushed, so that it appears immediately in a pipe too.
say = partial(print, flush=True)


class TestnetError(Exception):
    """The set-up can't continue. The message is one sentence."""


class _Unusable(TestnetError):
    """A node can't be used now."""


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
        say(f"\nStopped. To continue: {testnet.command}")
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
                self._url(name, f"URL of a node of {NAMES[chain_id]}", default, self._about_node)
            except _Unusable as error:
                if chain_id == SEPOLIA:  # the facts are about it
                    raise
                say(error, f"Going on without {NAMES[chain_id]}.")
        self._key()
        self._beacon()
        self._migrate()
        self._deploy(wait_seconds)
        self._serve(chosen_port("PORT", self.port, PORT))

    # --- Nodes --------------------------------------------------------------------------------------------------------

    def _url(self, name: str, question: str, default: str, examine: Callable[[str], Sequence[str]]) -> str:
        """Set and return the URL of a usable node: from the environment, from an earlier run, or typed now.

        `examine` gets the variable's name. It returns why the node can't be used, or an empty text, and lines about it.
        """
        kept = self.secrets / name.lower()
        is_given = bool(os.environ.get(name) or os.environ.get(f"{name}_FILE"))
        is_typed = not is_given and not kept.exists()
        if not is_given and not is_typed:
            self.environment[f"{name}_FILE"] = str(kept)
        while True:
            typed = _ask(question, default) if is_typed else ""
            if is_typed:
                self.environment[name] = typed or default
            try:
                url, lines = self._examined(name, examine)
                break
            except TestnetError as refusal:
                if is_typed and sys.stdin.isatty() and (typed or not default):
                    say(refusal, _ANOTHER)
                    continue
                first = "" if is_given or is_typed else f" (first remove {kept}, to be asked for another one)"
                raise type(refusal)(f"{refusal} To try again: {self.command}{first}") from None
        if is_typed:
            with new_private_file(kept) as draft:
                draft.write_text(self.environment.pop(name))
            self.environment[f"{name}_FILE"] = str(kept)
        say(f"{name}: {'from the environment' if is_given else f'kept in {kept}'}.", *lines, sep="\n")
        return url

    def _examined(self, name: str, examine: Callable[[str], Sequence[str]]) -> tuple[str, Sequence[str]]:
        """Return a URL and lines about its node. Raises `_Unusable`, or another `TestnetError` if it is no URL."""
        try:
            url = variable(name, self.environment)
        except ValueError as error:
            is_file = self.environment.get(f"{name}_FILE")
            why = f"can't be used: {error}." if is_file else "is missing: type it, or set it in the environment."
            raise TestnetError(f"{name} {why}") from None
        if url == NONE:
            return url, []
        if not is_http_url(url):
            raise TestnetError(f"{name} can't be used. It must be an http or https URL.")
        refused, *lines = examine(name)
        if refused:
            raise _Unusable(f"{name} can't be used. {refused}")
        return url, lines

    def _about_node(self, name: str) -> Sequence[str]:
        chain_id, _ = NODES[name]
        output, refused = self._manage("check_chains", "--node", f"${{{name}}}")
        first_line, *lines = output.splitlines() or [""]
        if first_line and first_line != f"A node of chain {chain_id}":
            return [f"{first_line}, and not of chain {chain_id}."]
        # A node of a destination needn't serve proofs.
        is_refused = chain_id == SEPOLIA or not first_line
        return [_without_code(refused) if is_refused else "", *lines]

    def _about_beacon_node(self, _: str) -> Sequence[str]:
        output, refused = self._manage("check_chains")
        lines = [line.strip() for line in output.splitlines() if line.startswith("  Beacon node ")]
        if not lines:
            return [refused]
        return ["" if any(" is final" in line for line in lines) else " ".join(lines), *lines]

    # --- Key ----------------------------------------------------------------------------------------------------------

    def _key(self) -> None:
        """Make sure that there is a keystore for the signer, with its password file."""
        keystore, password = self.secrets / "testnet.json", self.secrets / "testnet.password"
        if keystore.exists():
            # The keystore is tested before anyone sends money to its address, because an unreadable key can't spend it.
            try:
                account = SignerKey(keystore_file=keystore, password_file=password).account()
            except SignerError as error:
                raise TestnetError(str(error)) from None
            say(f"Signer: {account.address}, kept in {keystore}.")
            return
        if not password.exists():
            chosen = _ask("Passphrase for the signer's new key", "a random one")
            if chosen:
                with new_private_file(password) as draft:
                    draft.write_text(chosen)
        address = self._must("make_keystore", str(keystore), str(password)).strip()
        say(f"Signer: {address}, a new key in {keystore}, whose passphrase is in {password}.")

    # --- Beacon node --------------------------------------------------------------------------------------------------

    def _beacon(self) -> None:
        """Configure a beacon node, if there is one, in a copy of the chains file."""
        configured = self.environment["CHAINS_FILE"]
        self.state.mkdir(mode=0o700, exist_ok=True)
        chains = self.state / "chains.toml"
        # The copy is one folder nearer to the secrets.
        written = Path(configured).read_text().replace('"../../secrets/', '"../secrets/')
        node = f'beacon_urls = ["${{{BEACON}}}"]'
        chains.write_text(re.sub(r'(\nrpc_urls = \["\$\{SEPOLIA_RPC_URL\}"\].*)', rf"\1\n{node}", written))
        self.environment["CHAINS_FILE"] = str(chains)
        try:
            url = self._url(
                BEACON, f"URL of a beacon node of {NAMES[SEPOLIA]}, for old blocks", NONE, self._about_beacon_node
            )
        except _Unusable as error:
            say(error, "Going on without it: old blocks wait.")
            return
        if url == NONE:
            self.environment["CHAINS_FILE"] = configured

    # --- Contracts ----------------------------------------------------------------------------------------------------

    def _migrate(self) -> None:
        self.state.mkdir(mode=0o700, exist_ok=True)
        self._must("migrate", "--no-input", "-v", "0")
        self._must("collectstatic", "--no-input", "-v", "0")
        say(f"Database and pages: in {self.state}.")

    def _deploy(self, wait_seconds: float) -> None:
        """Deploy the registries for Sepolia's facts where the signer has money. Wait until there is one at least."""
        began, reminded_at, reminded_of = time.monotonic(), -math.inf, dict[int, bool]()
        left, is_there = [SEPOLIA, OP_SEPOLIA], False
        while left and not is_there:
            # The amounts change with the gas price at each check.
            costs = self._costs()
            for destination in [*left]:
                if costs[destination].startswith((_COSTS, _IS_THERE)):
                    left.remove(destination)
                    is_there |= self._is_deployed(destination, costs[destination])
            lacks_money = {destination: costs[destination].startswith(_LACKING) for destination in left}
            if left and (is_there or lacks_money != reminded_of or time.monotonic() - reminded_at > TELL_SECONDS):
                say(*(_need(destination, costs[destination]) for destination in left), sep="\n")
                reminded_at, reminded_of = time.monotonic(), lacks_money
                if not is_there:
                    say(f"Waiting up to {wait_seconds / 60:g} minutes for one of these. Ctrl-C stops; nothing is lost.")
            if left and not is_there:
                if time.monotonic() - began >= wait_seconds:
                    raise TestnetError(f"The money is not there yet. When it is, run this again: {self.command}")
                time.sleep(POLL_SECONDS)
        if not is_there:
            raise TestnetError(f"There is no facts registry, so nothing can be served. To try it again: {self.command}")
        for destination in left:
            # A user who submits such a batch must know why the batch waits.
            say(f"Batches for {NAMES[destination]} wait until you have done this, stopped this, and run it again:")
            say(f"  {self.command}")

    def _is_deployed(self, destination: int, costs: str) -> bool:
        """Deploy a registry, and return whether it can be used. Otherwise print why, and the command that failed."""
        if costs.startswith(_COSTS):
            say(f"Facts of {NAMES[SEPOLIA]} on {NAMES[destination]}: deploying what is missing ... {costs}")
        arguments = "deploy_registry", str(destination), str(SEPOLIA)
        output, refused = self._manage(*arguments, shows_progress=True)
        say(refused or output.strip())
        if refused:
            say(f"Batches for {NAMES[destination]} wait until this works: {self._whole(*arguments)}")
        return not refused

    def _costs(self) -> dict[int, str]:
        """Return a line of `check_chains` about each destination: the signer's costs there, or the registry.

        Otherwise, return a line about the node, which doesn't answer.
        """
        output, refused = self._manage("check_chains")
        about, chain = dict[int, list[str]](), 0
        for line in output.splitlines():
            chain = next((each for each, name in NAMES.items() if line == f"{name} ({each})"), chain)
            about.setdefault(chain, []).append(line.strip())
        begin = (_LACKING, _COSTS, _IS_THERE)
        return {
            chain: next((line for line in about.get(chain, ()) if line.startswith(begin)), "")
            or next((line for line in about.get(chain, ())[1:] if not line.startswith("node ")), refused)
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

    def _manage(self, *arguments: str, shows_progress: bool = False) -> tuple[str, str]:
        """Return the output of a command of manage.py, and its last sentences if it fails.

        If it `shows_progress`, print its other sentences while it runs.
        """
        command = [sys.executable, str(PROJECT / "manage.py"), *arguments]
        pipe = subprocess.PIPE
        sentences = ["it said nothing"]
        with subprocess.Popen(
            command, env=self.environment, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            try:
                for line in process.stderr:
                    if line.startswith("CommandError: "):
                        sentences = [line.removeprefix("CommandError: "), *process.stderr]
                    else:
                        sentences = [line]
                        if shows_progress and not _LOGGED.match(line):
                            say(f"  {line.strip()}")
                output = process.stdout.read()
            except BaseException:
                # Only a terminal's Ctrl-C signals it too.
                process.kill()
                raise
        return output, "".join(sentences).strip() if process.returncode else ""


def _need(destination: int, costs: str) -> str:
    """Return the sentences about a destination where nothing can be deployed yet."""
    if costs.startswith(_LACKING):
        return f"{costs} Faucets:\n{FAUCETS[destination]}"
    return f"{NAMES[destination]} can't be used yet. {costs}"


def _without_code(problem: str) -> str:
    return re.sub("^[a-z_]+: ", "", problem)


def _ask(question: str, otherwise: str) -> str:
    """Ask on the terminal without showing the answer. Without a terminal, read a line of standard input."""
    if sys.stdin.isatty():
        enter = f"; Enter: {otherwise}" if otherwise else ""
        return getpass.getpass(f"{question} (not shown{enter}): ").strip()
    return sys.stdin.readline().strip()


if __name__ == "__main__":
    sys.exit(main())
