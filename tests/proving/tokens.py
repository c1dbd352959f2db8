"""Contracts whose view functions are searched for slots: those of packages, and one for each trait of a layout."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contracts.build import imported_path, run_compiler
from devnet.devchain import DevChain
from devnet.foreign_contracts import PACKAGES, create, send
from tests.users import ALICE

FOLDER = Path(__file__).parent
VYPER_VERSIONS = ("0.2.12", "0.2.16", "0.3.10", "0.4.3")
# Contracts of the newer packages import others by the name that the older ones have here.
_REMAPPED = (
    "openzeppelin-contracts-upgradeable-5/:@openzeppelin/contracts/=openzeppelin-contracts-5/",
    "openzeppelin-contracts-5/:@openzeppelin/contracts/=openzeppelin-contracts-5/",
)
_SETTINGS = {"optimizer": {"enabled": True, "runs": 200}, "evmVersion": "cancun"}


# Contracts that are created without arguments.
_ALONE = [
    "OldToken",
    "OldVotesToken",
    "OldNft",
    "OldUpgradeableToken",
    "Token",
    "VotesToken",
    "Roles",
    "UpgradeableToken",
    "UpgradeableNft",
    "SolmateToken",
    "SoladyToken",
    "BehindSlotZero",
    "Registered",
    "Rebasing",
    "Sum",
    "Switched",
    "Lazy",
    "Flagged",
    "Odd",
    "Hidden",
    "Many",
    "Checkpoints",
    "CountedVotes",
    "Feed",
    "Escrow",
    "BehindNamespace",
    "Parts",
    "Lend",
    "Own",
    "Typed",
    "Hinted",
    "Far",
]
# Names, contracts, and the contract whose address is the only argument.
_WITH_ADDRESS = (
    ("Vault", "Vault", "SolmateToken"),
    ("old behind proxy", "OldProxy", "OldUpgradeableToken"),
    ("behind proxy", "NewProxy", "UpgradeableToken"),
    ("NFT behind proxy", "NewProxy", "UpgradeableNft"),
    ("Beacon", "Beacon", "UpgradeableToken"),
    ("behind beacon", "NewBeaconProxy", "Beacon"),
    ("behind older beacon", "OlderBeaconProxy", "Beacon"),
    ("behind slot 0", "SlotZeroProxy", "BehindSlotZero"),
    ("FeedProxy", "FeedProxy", "Feed"),
    ("Diamond", "Diamond", "BehindNamespace"),
    ("Kernel", "Kernel", "BehindNamespace"),
    ("AppProxy", "AppProxy", "Kernel"),
    *((name, name, "BehindNamespace") for name in ("LowPackedProxy", "HighPackedProxy", "FrozenProxy")),
)


@dataclass
class Deployed:
    """Contracts by their names, and the slots of their variables."""

    addresses: dict[str, str] = field(default_factory=dict)
    variables: dict[str, dict[str, int]] = field(default_factory=dict)


def deploy(chain: DevChain) -> Deployed:
    """Deploy all contracts, and run each one's function `fill` for Alice."""
    deployed = Deployed()
    addresses = deployed.addresses
    sources = compiled("Tokens.sol")
    for name, contract in sources.items():
        layout = contract["storageLayout"]["storage"]
        deployed.variables[name] = {each["label"]: int(each["slot"]) for each in layout}

    def add(name: str, code: str = "", *addresses_of: str) -> None:
        arguments = "".join(f"{addresses[each][2:].lower():0>64}" for each in addresses_of)
        addresses[name] = create(chain, sources[code or name]["evm"]["bytecode"]["object"] + arguments)

    for name in _ALONE:
        add(name)
    for name, code, argument in _WITH_ADDRESS:
        add(name, code, argument)
    for version in VYPER_VERSIONS:
        addresses[f"Vyper {version}"] = create(chain, (FOLDER / "vyper" / f"Token-{version}.hex").read_text().strip())
    implementations = {"UpgradeableNft", "Beacon", "BehindSlotZero", "BehindNamespace"}
    for name, address in addresses.items():
        if name not in implementations:
            send(chain, address, "fill(address)", ALICE)
    for name in ("OldVotesToken", "VotesToken"):
        # A second checkpoint, in another block.
        send(chain, addresses[name], "more(address)", ALICE)
    return deployed


def compiled(name: str) -> dict[str, Any]:
    """Return the compiler's output for each contract in a file of this folder."""
    source = (FOLDER / name).read_text()
    output = run_compiler(
        {name: source, **_imported(name, source)},
        {name: {"*": ["evm.bytecode.object", "storageLayout"]}},
        _REMAPPED,
        settings=_SETTINGS,
    )
    faults = [each["formattedMessage"] for each in output.get("errors", []) if each["severity"] == "error"]
    assert not faults, "\n".join(faults)
    contracts: dict[str, Any] = output["contracts"][name]
    return contracts


def _imported(path: str, text: str, known: Iterable[str] = ()) -> dict[str, str]:
    """Return the sources that a source imports, directly and indirectly, by the paths that the compiler knows."""
    sources: dict[str, str] = {}
    for name in re.findall(r'^import\b[^;]*?"([^"]+)"', text, re.MULTILINE):
        imported = imported_path(path, name)
        if path.startswith("openzeppelin-contracts-") and imported.startswith("@openzeppelin/contracts/"):
            imported = imported.replace("@openzeppelin/contracts", "openzeppelin-contracts-5", 1)
        if imported not in {*known, *sources}:
            sources[imported] = (PACKAGES / imported).read_text()
            sources |= _imported(imported, sources[imported], {*known, *sources})
    return sources
