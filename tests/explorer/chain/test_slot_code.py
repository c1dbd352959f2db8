"""Code that pages show for slots returns what the token answers: the part of the word, for any holder."""

import io
import re
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from eth_abi.abi import encode
from eth_utils.abi import function_signature_to_4byte_selector

from accounts.models import ApiKey, ThrottleCount
from devnet.devchain import DevChain
from tests import chain_fixtures, deployed
from tests.explorer import shown_code
from tests.proving import tokens
from tests.service import ALICE, BOB, asking, chains_toml, done, header, submit

pytestmark = [pytest.mark.django_db, pytest.mark.outside, pytest.mark.long]

_deployed: list[tokens.Deployed] = []
shared_chain = chain_fixtures.chain_fixture(lambda chain: _deployed.append(tokens.deploy(chain)))


@pytest.fixture
def chain(shared_chain: DevChain, settings, tmp_path) -> DevChain:
    settings.CHAINS_FILE = chains_toml(tmp_path, shared_chain.url)
    deployed.deploy_on(shared_chain)
    call_command("deploy_reader", 31337, stdout=io.StringIO())
    return shared_chain


# Contracts, their view functions with one address or none, and the type of the answer. A request has one name of a
# slot, from which several calls may answer: these are in several batches.
CALLS = [
    [
        ("Token", "balanceOf(address)", "uint256"),
        ("Flagged", "balanceOf(address)", "uint256"),
        ("Odd", "balanceOf(address)", "uint256"),
        ("Odd", "sharesOf(address)", "uint256"),
        ("Odd", "votes(address)", "uint256"),
        ("Odd", "stakeOf(address)", "uint256"),
        ("SoladyToken", "balanceOf(address)", "uint256"),
        ("Vyper 0.4.3", "balanceOf(address)", "uint256"),
        ("Vyper 0.2.12", "lockedEnd(address)", "uint256"),
        ("Vyper 0.4.3", "lockedEnd(address)", "uint256"),
        ("behind proxy", "balanceOf(address)", "uint256"),
        ("behind proxy", "delegates(address)", "address"),
        ("VotesToken", "getVotes(address)", "uint256"),
        ("Many", "votes(address)", "uint96"),
        ("Many", "tickOf(address)", "int24"),
        ("Many", "frozen(address)", "bool"),
        ("Many", "tags(address)", "bytes4"),
        ("OldNft", "tokenOfOwnerByIndex(address,uint256)", "uint256"),
        ("Many", "inBox(uint256,address)", "uint256"),
        ("Many", "plain()", "uint256"),
        ("Many", "tick()", "int24"),
        ("Many", "owner()", "address"),
        ("Typed", "pnl(address)(int256)", "int256"),
        ("Typed", "root()(bytes32)", "bytes32"),
        ("Typed", "price()(uint160)", "uint160"),
    ],
    [
        ("Many", "delegateOf(address)", "address"),
        ("Many", "isFrozen(address)", "bool"),
        ("Many", "paused()", "bool"),
    ],
    [("Many", "open()", "bool")],
]
# The last element of an array may be another one for another holder, and `()` has no holder.
OF_ONE = {"getVotes(address)"}
# Numbers in calls, and calls that revert without tokens.
NUMBERS = {"tokenOfOwnerByIndex(address,uint256)": 1, "inBox(uint256,address)": 3}
OF_HOLDERS = {"tokenOfOwnerByIndex(address,uint256)"}
# A word, and parts of it that a sender may state: their first bit, their size and their form.
WORD = 0xF23456789ABCDEF00FEDCBA9876543218123456789ABCDEF7EDCBA9876543219
PARTS = [
    *((offset, size, "unsigned") for offset, size in [(0, 255), (255, 1), (48, 208), (3, 13), (8, 160)]),
    *((offset, size, "signed") for offset, size in [(0, 256), (0, 24), (128, 128), (24, 8), (4, 252), (64, 64)]),
    (3, 13, "signed"),
    *((offset, size, "left") for offset, size in [(0, 256), (0, 32), (224, 32), (8, 160)]),
    *((offset, size, "bool") for offset, size in [(0, 256), (1, 1), (0, 8), (255, 1), (2, 1)]),
]
# Parts of a word that a call answers as an amount, with the same columns.
OF_AMOUNT = [
    *((offset, size, "left") for offset, size in [(0, 256), (0, 32), (8, 248), (0, 248), (8, 160), (3, 13)]),
    *((offset, size, "bool") for offset, size in [(0, 256), (1, 1), (0, 8), (255, 1), (2, 1)]),
    (8, 160, "unsigned"),
]
# Parts that a call answers as an address, which may be narrower.
OF_ADDRESS = [(8, 96, "unsigned"), (0, 157, "unsigned"), (8, 160, "unsigned")]
LANGUAGES = {"Solidity", "viem", "web3.py", "cast", "FactsReader"}


def is_of_any(signature: str) -> bool:
    """Return whether the code is for any holder."""
    return "address" in signature and signature not in OF_ONE


@dataclass(frozen=True)
class Answer:
    """The answer of a contract: its word, and the word in the form of programs."""

    type: str
    word: str

    @property
    def text(self) -> str:
        number = int(self.word, 16)
        if self.type.startswith("bytes"):
            return self.word[: 2 + 2 * int(self.type.removeprefix("bytes"))]
        if self.type == "address":
            return f"0x{number:040x}"
        if self.type == "bool":
            return "true" if number else "false"
        return str(number - (1 << 256) if self.type.startswith("int") and number >> 255 else number)


def call_data(signature: str, *values: Any) -> str:
    signature, _, _ = signature.partition(")(")
    signature = f"{signature.removesuffix(')')})"
    types = list(filter(None, signature.partition("(")[2].removesuffix(")").split(",")))
    return f"0x{(function_signature_to_4byte_selector(signature) + encode(types, values)).hex()}"


def arguments(signature: str, holder: str) -> list[str | int]:
    types = signature.partition("(")[2].partition(")")[0].split(",")
    return [holder if each == "address" else NUMBERS[signature] for each in types if each]


def found(key: ApiKey, contract: str, signature: str, holder: str, block: int) -> Any:
    """Return the slot from which a call answers."""
    # The limit has its own test.
    ThrottleCount.objects.all().delete()
    body = {
        "sourceChainId": "31337",
        "block": f"block:{block}",
        "contract": contract,
        "signature": signature,
        "arguments": list(map(str, arguments(signature, holder))),
    }
    answer = Client().post("/find-slots", body, content_type="application/json", headers=header(key))
    assert answer.status_code == 200, answer.content
    return answer.json()["slots"][0]


def values_of(key: ApiKey, account: str, block: int) -> dict[str, str]:
    """Return the values of all slots of an account by the slot."""
    held = Client().get(f"/facts?account={account}&block={block}", headers=header(key)).json()["facts"]
    return {fact["slot"]: fact["value"] for fact in held}


def programs_of(account: str, block: int) -> dict[str, dict[str, str]]:
    """Return the programs of all slots of an account by the slot."""
    shown = shown_code.of_page(f"/facts?account={account}&block={block}")
    return {re.findall("0x[0-9a-f]{64}", each["viem"])[-1]: each for each in shown}


def for_holder(code: str, holder: str, block: int) -> tuple[str, tuple[str, str]]:
    """Return the code with a contract that calls its function, and the name and calldata of the contract."""
    match = re.search(r"function (\w+)\(address holder, uint256 blockNumber\) internal view returns \((\w+)\)", code)
    assert match, code
    function, kind = match.groups()
    caller = (
        f"contract Caller is Example {{ function run(address holder, uint256 number) external view returns ({kind}) "
        f"{{ return {function}(holder, number); }} }}"
    )
    return f"{code}\n{caller}", ("Caller", call_data("run(address,uint256)", holder, block))


def outputs(programs: dict[str, str], chain: DevChain, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Return what the programs without a compiler print."""
    exec(programs["web3.py"], {})
    printed = {"web3.py": capsys.readouterr().out.strip().lower()}
    if "cast" in programs:
        printed["cast"] = shown_code.printed_by_shell(programs["cast"], chain.url).lower()
    return printed


@pytest.mark.parametrize("calls", CALLS, ids=["whole and parts", "beside them", "and another"])
def test_every_program_returns_what_the_token_answers(chain, key, monkeypatch, capsys, tmp_path, calls):
    monkeypatch.setenv("RPC_URL", chain.url)
    chain.mine()
    block, addresses = chain.head(), _deployed[-1].addresses
    answers: list[dict[str, Answer]] = []
    slots: list[tuple[str, str]] = []
    accounts: dict[str, Any] = {}
    for name, signature, kind in calls:
        to, of_call = addresses[name], {}
        for holder in [ALICE] if signature in OF_HOLDERS else [BOB, ALICE] if is_of_any(signature) else [ALICE]:
            slot = found(key, to, signature, holder, block)
            accounts.setdefault(to, {"slots": []})["slots"].append(slot["slotName"])
            call = {"to": to, "data": call_data(signature, *arguments(signature, holder))}
            of_call[holder] = Answer(kind, chain.rpc("eth_call", call, hex(block)))
            assert "int" not in kind or slot["value"] == of_call[holder].text, (name, signature, slot)
        answers.append(of_call)
        slots.append((to, slot["slot"]))
    done(submit(key, asking({f"block:{block}": {"accounts": accounts}})), chain)
    shown = {account: programs_of(account, block) for account in accounts}
    programs = [shown[account][slot] for account, slot in slots]

    values = {account: values_of(key, account, block) for account in accounts}
    for (account, slot), (_, _, kind), of_call in zip(slots, calls, answers, strict=True):
        assert "int" not in kind or values[account][slot] == of_call[ALICE].text

    sources: dict[str, str] = {}
    to_call: dict[str, tuple[str, str]] = {}
    expected: dict[str, str] = {}
    for (name, signature, _), codes, of_call in zip(calls, programs, answers, strict=True):
        assert codes.keys() == LANGUAGES
        text = of_call[ALICE].text
        assert outputs(codes, chain, capsys) == dict.fromkeys(("web3.py", "cast"), text), (name, signature)
        for language, (holder, answer) in product(("Solidity", "FactsReader"), of_call.items()):
            file, code = f"{name} {signature} {language} {holder}.sol", codes[language]
            if is_of_any(signature):
                function = "read" if signature in NUMBERS else signature.partition("(")[0]
                assert f" {function}(address holder, uint256 blockNumber) internal" in code
                assert ("in erc7201:openzeppelin.storage." in code) is (name == "behind proxy")
                sources[file], to_call[file] = for_holder(code, holder, block)
            else:
                sources[file], to_call[file] = code, ("Example", call_data("read()"))
            expected[file] = answer.word
    assert shown_code.returned(sources, to_call, chain) == expected
    printed = shown_code.printed([codes["viem"] for codes in programs], chain.url, tmp_path)
    assert printed == [of_call[ALICE].text for of_call in answers]


def stated_answer(offset: int, size: int, form: str, *, call: str | None) -> Answer:
    """Return what a call answers from a part of `WORD`."""
    is_amount = call == "totalSupply()"
    bits = f"{WORD:0256b}"[256 - offset - size : 256 - offset]
    if form == "left" and is_amount:
        return Answer("uint256", f"0x{int(bits.ljust(256, '0'), 2):064x}")
    if form == "left":
        return Answer(f"bytes{size // 8}", f"0x{int(bits, 2):0{size // 4}x}".ljust(66, "0"))
    if form == "bool":
        return Answer("uint256" if is_amount else "bool", f"0x{int('1' in bits):064x}")
    kind = "address" if call == "owner()(address)" or (size == 160 and not is_amount) else "uint256"
    if form == "signed":
        return Answer("int256", f"0x{int(bits.rjust(256, bits[0]), 2):064x}")
    return Answer(kind, f"0x{int(bits, 2):064x}")


@pytest.mark.parametrize(
    ("parts", "call"),
    [(PARTS, None), (OF_AMOUNT, "totalSupply()"), (OF_ADDRESS, "owner()(address)")],
    ids=["any", "amounts", "addresses"],
)
def test_every_program_returns_any_part_that_is_stated(chain, key, monkeypatch, capsys, tmp_path, parts, call):
    monkeypatch.setenv("RPC_URL", chain.url)
    account, answers = _deployed[-1].addresses["Sum"], [stated_answer(*part, call=call) for part in parts]
    for slot in range(len(parts)):
        chain.rpc("anvil_setStorageAt", account, f"0x{slot + 4096:064x}", f"0x{WORD:064x}")
    chain.mine()
    block = chain.head()
    stated = {"call": call} if call else {}
    names = [
        {"slot": f"{slot + 4096:x}", "keys": [], **stated, "part": {"offset": offset, "size": size, "form": form}}
        for slot, (offset, size, form) in enumerate(parts)
    ]
    done(submit(key, asking({f"block:{block}": {"accounts": {account: {"slots": names}}}})), chain)
    programs = [codes for _, codes in sorted(programs_of(account, block).items())]
    told = [value for _, value in sorted(values_of(key, account, block).items())]
    for part, value, answer in zip(parts, told, answers, strict=True):
        bits = int(answer.word, 16)
        number = {"left": bits >> (0 if call else 256 - part[1]), "signed": bits - (bits >> 255 << 256)}
        assert value == str(number.get(part[2], bits)), part
    for part, codes, answer in zip(parts, programs, answers, strict=True):
        # A shell has no such numbers.
        tools = {"web3.py"} if part == (3, 13, "signed") else {"web3.py", "cast"}
        assert codes.keys() == LANGUAGES - {"cast"} | tools
        assert outputs(codes, chain, capsys) == dict.fromkeys(tools, answer.text), part
    for language in ("Solidity", "FactsReader"):
        sources = {f"{place}.sol": codes[language] for place, codes in enumerate(programs)}
        to_call = dict.fromkeys(sources, ("Example", call_data("read()")))
        assert list(shown_code.returned(sources, to_call, chain).values()) == [answer.word for answer in answers]
    printed = shown_code.printed([codes["viem"] for codes in programs], chain.url, tmp_path)
    assert printed == [answer.text for answer in answers]
