"""Decisions about a block, tested without a chain, a database and a clock."""

import ast
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chains.tries.header import Header
from chains.tries.packed import OLD_BLOCK, BlockBranch, HeaderParts
from devnet.devchain import PROJECT
from proving.facts import AccountFact, Fact, HeaderFact, Missing, RegistryView, TimeFact
from proving.failures import FailedFacts, FailedTransaction, Tries
from proving.models import FailureCause
from proving.paths.checkpoints import Jump
from proving.paths.planning import Hops
from proving.reconcile import decide, observation
from proving.sources import NotYet, Preparation, Start
from proving.working.ends import Fails, Waits
from queries.batch_states import Complete
from queries.columns import AccountField, HeaderField, RejectionCode
from queries.models import PathUnit, StepKind
from queries.waits import wait

ROOT, HASH = b"\1" * 32, b"\2" * 32
ALICE = "0x" + "a1" * 20
BALANCE, NONCE = AccountFact(ALICE, AccountField.BALANCE), AccountFact(ALICE, AccountField.NONCE)
OF_HEADER, OF_TIME = HeaderFact(HeaderField.GAS_USED), TimeFact(1005)
INITIAL, AVAILABLE, HEADER, ACCOUNT = StepKind
PLAIN, HEADED, TIMED = (
    observation.OpenQuery(pk, is_of_header, time, AVAILABLE)
    for pk, is_of_header, time in ((1, False, None), (2, True, None), (3, False, 1005))
)


def header(number: int = 8, *, timestamp: int = 1010, parent: bytes = HASH) -> Header:
    """Return a header that has only the fields needed for decisions."""
    return cast("Header", SimpleNamespace(number=number, timestamp=timestamp, parent_hash=parent, hash=b"\3" * 32))


OWN, NEXT = header(7, timestamp=1000), header(8)
FOR_PATH = Waits(wait("path"), 0.5, for_path=True)
HOPS = Hops(100, (50, 7))
LIE = wait("value_contradicted", fact="BALANCE")

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NOT_VOUCHED_FOR, VOUCHED_FOR = (observation.Trust(OWN, is_vouched_for=is_known) for is_known in (False, True))
UNPROVEN = observation.UnprovenFacts(missing={BALANCE: [1]}, root_is_known=False, trust=VOUCHED_FOR)
NOTHING = observation.Observation(
    number=7,
    hash=HASH,
    timestamp=1000,
    path_left=0,
    source=1,
    poll_seconds=0.5,
    source_poll_seconds=3,
    awaiting_header=[PLAIN],
    queries={1: PLAIN},
    view=RegistryView(bytes(32), {}),
    root_is_confirmed=False,
    accumulated_by="",
    proven_by={},
    contradiction=None,
    unproven=UNPROVEN,
)
TRUSTED = replace(
    NOTHING,
    view=RegistryView(ROOT, {BALANCE: None}),
    root_is_confirmed=True,
    accumulated_by="0xacc",
    unproven=replace(UNPROVEN, root_is_known=True, trust=None),
)


def seen(base: observation.Observation, **changes: Any) -> observation.Observation:
    """Return the observation with changed values, which may belong to any of its stages. All queries with missing facts
    are observed.
    """

    def of(stage: type) -> dict[str, Any]:
        return {field.name: changes.pop(field.name) for field in fields(stage) if field.name in changes}

    of_trust, of_unproven = of(observation.Trust), of(observation.UnprovenFacts)
    changed = replace(base, **changes)
    unproven = replace(base.unproven or UNPROVEN, **of_unproven)
    named = {query.id: query for query in (PLAIN, HEADED, TIMED)}
    queries = {**{pk: named[pk] for pks in unproven.missing.values() for pk in pks if pk in named}, **changed.queries}
    if of_trust:
        unproven = replace(unproven, trust=replace(unproven.trust or NOT_VOUCHED_FOR, **of_trust))
    unproven = replace(unproven, left_to_others=[pk for pk, query in queries.items() if query.is_left_to_others])
    return replace(changed, queries=queries, unproven=unproven if unproven.missing else None)


UNVOUCHED = seen(NOTHING, is_vouched_for=False)
SHORT, LIMIT = wait("transaction_out_of_gas", gas=99, limit=100, estimates=""), 100
IN_VAIN = Tries(count=4, highest=LIMIT, last=SHORT)


def failed(
    what: observation.Observation, times: int, *facts: Fact, cause: FailureCause = FailureCause.OUT_OF_GAS
) -> observation.Observation:
    """Return the observation after so many transactions for these facts have failed, one after another. Each query is
    of a batch of its own.
    """
    assert what.unproven
    transactions = [
        FailedTransaction(NOW + timedelta(minutes=number), cause, 2**number * LIMIT, SHORT) for number in range(times)
    ]
    more = [FailedFacts(transaction, [frozenset(facts)], True) for transaction in transactions]
    batches = {pk: f"batch {pk}" for pks in what.unproven.missing.values() for pk in pks}
    return seen(what, failed=[*what.unproven.failed, *more], batches=batches)


def kinds(decision: decide.Decision) -> list[str]:
    """Return names and steps of the actions that change something."""
    return [
        f"{type(action).__name__} {action.step}" if isinstance(action, Complete) else type(action).__name__
        for action in decision.actions
        if not isinstance(action, Complete) or action.queries
    ]


BLOCK_HASH, HEADER_DONE, ACCOUNT_DONE = (f"Complete {kind}" for kind in (AVAILABLE, HEADER, ACCOUNT))


ANOTHER_ROOT = seen(NOTHING, view=RegistryView(ROOT, {}))
MINED = seen(NOTHING, is_accumulating=True, root_is_known=True)
OF_HEADER_ALONE = seen(TRUSTED, awaiting_header=[HEADED], queries={2: HEADED}, missing={OF_HEADER: [2]}, header=OWN)
OF_TIME_ALONE = seen(NOTHING, queries={}, missing={OF_TIME: [3]}, header=NEXT)
NO_NEXT = seen(UNVOUCHED, trust=None, queries={}, missing={OF_TIME: [3]})
WITH_HEADER = seen(TRUSTED, missing={BALANCE: [1], OF_HEADER: [2]}, header=OWN)
WITH_TIME = seen(TRUSTED, missing={BALANCE: [1], OF_TIME: [3]}, trust=None)
GOES_ON, TIME_MOVED = decide.Continue(), decide.FindTime(1005, [3])
FIND_HEADER = decide.FindPath(OWN, {OF_HEADER: [2]})
FIRST = ["Note", BLOCK_HASH, HEADER_DONE, HEADER_DONE, "Prove"]


def again(code: str, seconds: float, **values: Any) -> Waits:
    return Waits(wait(code, **values), seconds)


LACKED: dict[str, tuple[observation.Observation, object, list[str]]] = {
    "nothing is paid twice": (seen(NOTHING, sent_for={BALANCE}), GOES_ON, [BLOCK_HASH]),
    "one header is enough": (seen(NOTHING, is_accumulating=True), again("header", 0.5), [BLOCK_HASH]),
    "the header is mined": (MINED, GOES_ON, [BLOCK_HASH, "Prove"]),
    "another root": (ANOTHER_ROOT, again("other_state_root", 0.5, block=7), []),
    "another root, but all is under way": (seen(ANOTHER_ROOT, queries={}, missing={}), GOES_ON, [BLOCK_HASH]),
    "one path at a time": (seen(UNVOUCHED, is_extending=True), FOR_PATH, []),
    "when the block ended is not known yet": (NO_NEXT, again("block_after", 3, block=7), []),
    "the header's own facts need its hash": (OF_HEADER_ALONE, FIND_HEADER, ["Note", BLOCK_HASH]),
    "what needs no hash goes first": (WITH_HEADER, FIND_HEADER, FIRST),
    "what needs no hash does not wait for the next block": (WITH_TIME, GOES_ON, FIRST),
    "the time is another block's now": (seen(OF_TIME_ALONE, header=header(timestamp=1005)), TIME_MOVED, [BLOCK_HASH]),
    "the time is an earlier block's now": (seen(OF_TIME_ALONE, timestamp=1006), TIME_MOVED, [BLOCK_HASH]),
    "the time is the block's very own": (seen(OF_TIME_ALONE, timestamp=1005), GOES_ON, [BLOCK_HASH, "ProveTime"]),
    "another branch": (seen(OF_TIME_ALONE, header=header(parent=ROOT)), again("reorganised", 3), [BLOCK_HASH]),
}


@pytest.mark.parametrize(("what", "then", "actions"), LACKED.values(), ids=LACKED)
def test_facts_missing_in_the_registry_lead_to_the_actions_of_each_case(what, then, actions):
    decision = decide.prove(what)
    assert (decision.then, kinds(decision)) == (then, actions)


def test_only_missing_facts_are_sent_and_a_header_only_if_they_need_it():
    def sent(what: observation.Observation) -> list[Any]:
        return [action for action in decide.prove(what).actions if isinstance(action, decide.Prove | decide.ProveTime)]

    assert sent(NOTHING) == [decide.Prove({BALANCE: [1]}, root_is_known=False)]
    assert sent(TRUSTED) == [decide.Prove({BALANCE: [1]}, root_is_known=True)]
    both: Missing = {BALANCE: [1], OF_HEADER: [2]}
    unvouched = seen(TRUSTED, missing=both, header=OWN)
    assert sent(unvouched) == [decide.Prove({BALANCE: [1]}, root_is_known=True, is_optional=True)]
    assert sent(seen(unvouched, is_extending=True)) == sent(unvouched)
    assert decide.prove(seen(unvouched, is_extending=True)).then == decide.Continue()
    assert decide.prove(seen(unvouched, path_tries=IN_VAIN)).then == decide.Continue()
    (prove,) = sent(NOTHING)
    assert prove.with_header
    (prove,) = sent(seen(unvouched, is_vouched_for=True))
    assert prove == decide.Prove(both, root_is_known=True)
    # A header is sent only for users who need it, and not if such a user can't pay.
    assert prove.with_header
    assert not replace(prove, missing={BALANCE: [1]}).with_header
    assert sent(seen(TRUSTED, missing={BALANCE: [1], NONCE: [1]}, sent_for=[NONCE])) == [
        decide.Prove({BALANCE: [1]}, root_is_known=True)
    ]
    timed = seen(NOTHING, queries={}, missing={OF_TIME: [3], BALANCE: [3]}, header=NEXT)
    assert sent(timed) == [decide.ProveTime(1005, NEXT, [3])]


def test_a_path_that_has_arrived_has_nothing_left():
    for what in (TRUSTED, seen(NOTHING, path_left=2)):
        assert decide.prove(what).actions[0] == decide.PATH_IS_COMPLETE


def test_steps_name_the_transactions_that_completed_them():
    open_queries = [PLAIN, HEADED, TIMED]
    queries = {query.id: query for query in open_queries}
    what = seen(
        TRUSTED, awaiting_header=open_queries, queries=queries, missing={BALANCE: [3]}, proven_by={2: "0xheader"}
    )
    completed = [action for action in decide.prove(what).actions if isinstance(action, Complete)]
    assert completed == [
        Complete([1, 2, 3], AVAILABLE),
        Complete([1], HEADER, "0xacc"),  # header and time queries complete when their facts are read
        Complete([1], HEADER, ""),
        Complete([1], ACCOUNT, ""),
        Complete([2], HEADER, "0xheader"),
        Complete([2], ACCOUNT, "0xheader"),
        Complete([3], HEADER, "0xacc"),  # its time is proven, but its account isn't
    ]
    further = replace(what, awaiting_header=[replace(query, step=HEADER) for query in open_queries])
    assert list(decide.prove(further).actions)[1:3] == [Complete([], AVAILABLE), Complete([1], HEADER, "0xacc")]
    untimed = seen(what, missing={BALANCE: [3], OF_TIME: [3]}, header=NEXT)
    assert Complete([3], HEADER, "0xacc") not in decide.prove(untimed).actions


def test_a_path_waits_for_that_of_a_block_that_has_waited_longer():
    decision = decide.path(UNVOUCHED, decide.FindPath(OWN, {BALANCE: [1]}), HOPS, is_first=False)
    assert decision == decide.Decision(FOR_PATH, [decide.note_path(2, PathUnit.HOPS), Complete([1], AVAILABLE)])
    not_yet = wait("no_finality", source=1)
    of_source = decide.path(UNVOUCHED, decide.FindPath(OWN, {BALANCE: [1]}), NotYet(not_yet))
    assert of_source == decide.Decision(Waits(not_yet, 3))


def test_a_block_that_its_source_can_vouch_for_is_proven_with_that_and_waits_for_no_path():
    start = Start(7, (("0xsource", b"attest"),), 36_000)
    prove = decide.Prove({BALANCE: [1]}, root_is_known=False, is_alone=True, path=start)
    decision = decide.path(UNVOUCHED, decide.FindPath(OWN, {BALANCE: [1]}), start, is_first=False)
    assert decision == decide.Decision(GOES_ON, [decide.note_path(0, PathUnit.HOPS), Complete([1], AVAILABLE), prove])
    # If the facts need the next block, the call is a path.
    find = decide.FindPath(NEXT, {BALANCE: [1]})
    assert decide.path(UNVOUCHED, find, start).actions[-1] == decide.ExtendPath(start, NEXT, {BALANCE: [1]})


JUMP: HeaderParts = [b"the origin's header", BlockBranch(OLD_BLOCK, b"the branch")]
BY_JUMP = Jump(header(100), parts=JUMP)
SHOWN: list[decide.Action] = [decide.note_path(1, PathUnit.JUMPS, 100), Complete([1], AVAILABLE)]


def test_a_jump_goes_with_the_blocks_own_proof_and_waits_for_no_path():
    find = decide.FindPath(OWN, {BALANCE: [1]})
    for is_extending in (False, True):
        what = seen(UNVOUCHED, is_extending=is_extending, may_jump=True)
        assert decide.prove(what).then == find
        prove = decide.Prove({BALANCE: [1]}, root_is_known=False, path=BY_JUMP)
        assert decide.path(what, find, BY_JUMP) == decide.Decision(decide.Continue(), [*SHOWN, prove])
        # A block whose transaction has reverted shares no transaction.
        alone = decide.path(failed(what, 1, BALANCE), find, BY_JUMP)
        assert alone.actions[-1] == replace(prove, is_alone=True)
    # A jump from constants has no origin.
    constant = decide.path(UNVOUCHED, find, Jump(parts=JUMP[1:]))
    assert constant.actions[0] == decide.note_path(1, PathUnit.JUMPS, None)


def test_a_jump_to_the_block_after_is_a_path():
    find = decide.FindPath(NEXT, {BALANCE: [1]})
    decision = decide.path(UNVOUCHED, find, BY_JUMP)
    assert decision == decide.Decision(FOR_PATH, [*SHOWN, decide.ExtendPath(BY_JUMP, NEXT, {BALANCE: [1]})])
    # A path is under way already, so the decision only waits for it.
    extending = seen(UNVOUCHED, is_extending=True, may_jump=True)
    for outcome in (BY_JUMP, Preparation((), 0)):
        assert decide.path(extending, find, outcome) == decide.Decision(FOR_PATH)


def test_a_time_that_no_later_block_has_or_its_own_contradicts():
    def decided(block_of_time: observation.BlockOfTime) -> decide.Decision:
        return decide.time(NOTHING, decide.FindTime(1005, [3]), block_of_time)

    gone = Waits(wait("no_later_block", chain=1, time=1005), 3)
    assert decided(observation.BlockOfTime(has_later=False)) == decide.Decision(gone)
    for number in (None, 7):
        assert isinstance(decided(observation.BlockOfTime(has_later=True, number=number)).then, Fails)


CHECKED = observation.Checked(2, 50, HASH, header(50), header(60), 0.5)


def test_a_destination_that_was_reorganised():
    there = cast("Header", SimpleNamespace(hash=HASH))
    assert decide.checked(replace(CHECKED, header=there)) == decide.Decision(GOES_ON)
    for behind in (replace(CHECKED, header=None), replace(CHECKED, header=there, confirmed=header(49))):
        assert decide.checked(behind) == decide.Decision(again("node_behind", 0.5, chain=2, block=50))
    gone = observation.Gone([1], [2])
    reason = "The destination chain was reorganised: block 50 is another one now."
    reopened = [decide.Reopen([1], HEADER, reason), decide.Reopen([2], ACCOUNT, reason)]
    assert decide.gone(CHECKED, gone).actions == [*reopened, decide.note_checked(header(60))]
    assert decide.gone(CHECKED, replace(gone, contradiction=LIE)) == decide.Decision(Fails(LIE))


def test_the_header_of_the_source_chain():
    block = observation.SourceBlock(1, 7, OWN, "", 3)
    assert decide.source_block(block) == decide.Decision(decide.Continue(), [decide.TakeHeader(OWN)])
    assert decide.source_block(replace(block, stored_hash="0x" + OWN.hash.hex())) == decide.Decision(GOES_ON, [])
    missing = replace(block, header=None, head=6, seconds=0)
    reason = wait("block_to_come", chain=1, block=7, head=6, last=None)
    unproven = wait("source_without_block", chain=1, block=7)
    assert decide.source_block(replace(missing, head=7)) == decide.Decision(Fails(unproven))
    # A block far ahead is checked later, but within a minute, because a lagging node may catch up.
    for seconds, pause in ((0, 3), (12, 12), (900, 60)):
        assert decide.source_block(replace(missing, seconds=seconds)) == decide.Decision(Waits(reason, pause))


PRUNED = wait("proof_refused", problem="Pruned.")
REFUSED = observation.Unfetched(1, 7, {4: PRUNED}, refused=[4], withheld=[], refused_since=None, now=NOW)
REFUSED_YET = wait("rejected_in_ten_minutes", reason=PRUNED)
UNUSABLE = wait("no_usable_proof", chain=1, block=7, reason=PRUNED)
REJECTED = decide.Reject([4], RejectionCode.PROOF_UNAVAILABLE, UNUSABLE, retryable=True)


@pytest.mark.parametrize(
    ("what", "then", "actions"),
    [
        (replace(REFUSED, refused_since=NOW - timedelta(minutes=9)), Fails(REFUSED_YET, (4,)), []),
        (replace(REFUSED, refused_since=NOW - timedelta(minutes=10)), decide.Continue(), [REJECTED]),
        (replace(REFUSED, withheld=[4], refused_since=NOW - timedelta(hours=9)), Fails(PRUNED, (4,)), []),
        (
            replace(REFUSED, refused=[], refused_since=NOW),
            Fails(PRUNED, (4,)),
            [decide.Note({"refused_since": None})],
        ),
    ],
)
def test_refused_proofs_are_asked_for_again_for_ten_minutes_and_then_rejected(what, then, actions):
    decision = decide.unfetched(what)
    assert (decision.then, list(decision.actions)) == (then, actions)


OTHERS, OTHERS_TIMED = replace(PLAIN, id=4, is_left_to_others=True), replace(TIMED, is_left_to_others=True)


def proofs_of(what: observation.Observation) -> list[Any]:
    """Return the facts that are sent, and then those for the case that nobody can pay for these."""
    found: list[Any] = []
    proof = next((action for action in decide.prove(what).actions if isinstance(action, decide.Prove)), None)
    while proof:
        found.append((proof.missing, proof.is_alone, proof.least_limit))
        proof = proof.otherwise
    return found


def test_facts_that_failed_go_alone_and_with_a_higher_limit_from_the_third_try_on():
    both = seen(TRUSTED, missing={BALANCE: [1], NONCE: [4]})
    assert proofs_of(both) == [({BALANCE: [1], NONCE: [4]}, False, 0)]
    # Both were in one transaction.
    once = failed(both, 1, BALANCE, NONCE)
    assert proofs_of(once) == [({BALANCE: [1]}, True, 0), ({NONCE: [4]}, True, 0)]
    assert proofs_of(failed(both, 2, BALANCE)) == [({NONCE: [4]}, False, 0), ({BALANCE: [1]}, True, 300)]
    assert proofs_of(failed(both, 3, BALANCE)) == [({NONCE: [4]}, False, 0), ({BALANCE: [1]}, True, 600)]
    # Another batch asks for facts that have failed.
    assert proofs_of(failed(seen(both, missing={BALANCE: [4]}), 2, BALANCE)) == [({BALANCE: [4]}, True, 300)]


def test_facts_that_reverted_after_reorgs_go_with_others_until_there_were_many():
    both = seen(TRUSTED, missing={BALANCE: [1], NONCE: [4]})
    outdated = partial(failed, cause=FailureCause.OUTDATED)
    assert proofs_of(outdated(both, 16, BALANCE)) == proofs_of(both)
    assert proofs_of(outdated(both, 17, BALANCE)) == [({NONCE: [4]}, False, 0)]


def test_facts_that_failed_too_often_wait_and_hold_up_no_others():
    both = failed(seen(TRUSTED, missing={BALANCE: [1], NONCE: [4]}), 4, BALANCE)
    assert proofs_of(both) == [({NONCE: [4]}, False, 0)]
    fails = Fails(wait("reverted", count=4, reason=SHORT), (1,))
    assert decide.prove(both).then == fails
    alone = failed(TRUSTED, 4, BALANCE)
    assert (proofs_of(alone), decide.prove(alone).then) == ([], fails)
    # A path is neither sought nor waited for.
    assert decide.prove(failed(UNVOUCHED, 4, BALANCE)).then == fails


def test_a_path_that_failed_too_often_waits():
    fails = Fails(wait("path_reverted", count=4, reason=SHORT))
    assert decide.prove(seen(UNVOUCHED, path_tries=IN_VAIN)).then == fails
    what = seen(UNVOUCHED, path_tries=replace(IN_VAIN, count=2))
    find = decide.FindPath(OWN, {BALANCE: [1]})
    assert decide.prove(what).then == find
    for plan in (HOPS, Preparation((), 0)):
        action = decide.path(what, find, plan).actions[-1]
        assert isinstance(action, decide.ExtendPath | decide.PreparePath)
        assert action.least_limit == 150


def test_facts_left_to_others_are_completed_and_never_sent():
    under_way = failed(seen(UNVOUCHED, is_extending=True), 4, BALANCE)
    for base, actions in ((under_way, []), (NOTHING, [BLOCK_HASH])):
        decision = decide.prove(seen(base, awaiting_header=[OTHERS], queries={4: OTHERS}, missing={BALANCE: [4]}))
        assert (decision.then, kinds(decision)) == (GOES_ON, actions)


def test_only_parts_of_its_own_are_sent():
    queries = {1: PLAIN, 4: OTHERS}
    both = seen(NOTHING, queries=queries, missing={BALANCE: [1, 4], NONCE: [4], OF_HEADER: [4]})
    (prove,) = [action for action in decide.prove(both).actions if isinstance(action, decide.Prove)]
    assert prove.missing == {BALANCE: [1]}
    below = seen(both, root_is_known=True, is_vouched_for=False)
    assert below.unproven
    assert below.unproven.to_send_with_header == {}
    assert decide.prove(below).then == decide.Continue()
    unvouched = decide.prove(seen(both, is_vouched_for=False)).then
    assert unvouched == decide.FindPath(OWN, {BALANCE: [1]})


def test_a_time_that_others_prove_moves_with_a_reorg():
    for following, then in ((NEXT, GOES_ON), (header(8, timestamp=1004), TIME_MOVED)):
        what = seen(NOTHING, queries={3: OTHERS_TIMED}, missing={OF_TIME: [3]}, header=following)
        assert decide.prove(what).then == then


# --- Modules that can spend money -------------------------------------------------------------------------------------


def names_in(path) -> set[str]:
    """Return the last part of each name that the module imports, uses or calls."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.name for alias in node.names}
    return names


def users_of(*names: str) -> set[str]:
    paths = [path for path in (PROJECT / "proving").rglob("*.py") if "migrations" not in path.parts]
    return {path.relative_to(PROJECT / "proving").as_posix() for path in paths if names_in(path) & set(names)}


@pytest.mark.long
def test_one_module_signs_two_reserve_for_it_and_the_monitor_goes_on():
    signing = "sending/signing.py"
    assert users_of("sign_transaction", "tell_all") == {signing}
    reserving = {"sending/orders.py", "sending/replacement.py"}
    assert users_of("reserve_version", "reserve_cancellation") - {signing} == reserving
    going_on = users_of("send_reserved", "sign_and_store", "broadcast") - {signing}
    assert going_on == {*reserving, "sending/transaction_monitor.py"}


def test_deciding_reads_and_writes_nothing():
    used = names_in(PROJECT / "proving" / "reconcile" / "decide.py")
    assert not used & {
        "objects",
        "save",
        "update",
        "lane",
        "connection",
        "settings",
        "timezone",
        "submit_all",
        "progress",
    }


def test_observing_writes_nothing():
    for module in ("observe.py", "proofs.py"):
        used = names_in(PROJECT / "proving" / "reconcile" / module)
        assert not used & {"save", "create", "bulk_create", "update", "delete", "writing", "progress", "submit_all"}
