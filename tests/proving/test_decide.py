"""Decisions about a block, tested without a chain, a database and a clock."""

import ast
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chains.header import Header
from chains.packed import OLD_BLOCK, BlockBranch, HeaderParts
from devnet.devchain import PROJECT
from proving.facts import AccountFact, HeaderFact, Missing, RegistryView, TimeFact
from proving.models import AccountProof
from proving.paths.building import PathFound
from proving.paths.checkpoints import Jump
from proving.paths.planning import Hops
from proving.reconcile import decide
from proving.reconcile.decide import (
    Action,
    Continue,
    Decision,
    ExtendPath,
    Fail,
    FindPath,
    FindTime,
    FindWhatIsGone,
    MoveToBlock,
    NoteChecked,
    NoteRefused,
    PreparePath,
    Prove,
    ProveTime,
    Reject,
    Reopen,
    Requeue,
    ShowPath,
    StoreProofs,
    TakeHeader,
)
from proving.reconcile.observation import (
    BlockOfTime,
    Checked,
    Gone,
    Lacking,
    Observation,
    OpenQuery,
    SourceBlock,
    Trust,
    Unfetched,
)
from proving.reconcile.proofs import Fetched, Proven
from proving.sources import NotYet, Preparation, Start
from queries.columns import AccountField, HeaderField, RejectionCode
from queries.models import PathUnit, StepKind
from queries.progress import Complete
from queries.waits import wait

ROOT, HASH = b"\1" * 32, b"\2" * 32
ALICE = "0x" + "a1" * 20
BALANCE, NONCE = AccountFact(ALICE, AccountField.BALANCE), AccountFact(ALICE, AccountField.NONCE)
OF_HEADER, OF_TIME = HeaderFact(HeaderField.GAS_USED), TimeFact(1005)
INITIAL, AVAILABLE, HEADER, ACCOUNT = StepKind
ACCOUNT_QUERY, HEADER_QUERY, TIMED_QUERY = (
    OpenQuery(1, False, None, AVAILABLE),
    OpenQuery(2, True, None, AVAILABLE),
    OpenQuery(3, False, 1005, AVAILABLE),
)


def header(number: int = 8, *, timestamp: int = 1010, parent: bytes = HASH) -> Header:
    """Return a header that has only the fields needed for decisions."""
    return cast("Header", SimpleNamespace(number=number, timestamp=timestamp, parent_hash=parent, hash=b"\3" * 32))


OWN, NEXT = header(7, timestamp=1000), header(8)
FOR_PATH = Requeue(wait("path"), 0.5, for_path=True)
HOPS = Hops(100, (50, 7))
LIE = wait("value_contradicted", fact="BALANCE")

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NOT_VOUCHED_FOR = Trust(OWN, is_vouched_for=False, is_vouched_for_long=True, is_extending=False, pause_after_failures=0)
LACKING = Lacking(
    missing={BALANCE: [1]},
    left_to_others=(),
    sent_for=(),
    failures=0,
    root_is_known=False,
    is_accumulating=False,
    trust=replace(NOT_VOUCHED_FOR, is_vouched_for=True),
)
NOTHING_IN_REGISTRY = Observation(
    number=7,
    hash=HASH,
    timestamp=1000,
    attempts=0,
    path_left=0,
    source=1,
    poll_seconds=0.5,
    source_poll_seconds=3,
    now=NOW,
    gather_seconds=0,
    waits_since=None,
    awaiting_header=[ACCOUNT_QUERY],
    queries={1: ACCOUNT_QUERY},
    view=RegistryView(bytes(32), {}),
    root_is_confirmed=False,
    accumulated_by="",
    proven_by={},
    contradiction=None,
    lacking=LACKING,
)
TRUSTED = replace(
    NOTHING_IN_REGISTRY,
    view=RegistryView(ROOT, {BALANCE: None}),
    root_is_confirmed=True,
    accumulated_by="0xacc",
    lacking=replace(LACKING, root_is_known=True, trust=None),
)


def seen(base: Observation, **changes: Any) -> Observation:
    """Return the observation with changed values, which may belong to any of its stages. All queries with missing facts
    are observed.
    """

    def of(stage: type) -> dict[str, Any]:
        return {field.name: changes.pop(field.name) for field in fields(stage) if field.name in changes}

    of_trust, of_lacking = of(Trust), of(Lacking)
    changed = replace(base, **changes)
    lacking = replace(base.lacking or LACKING, **of_lacking)
    named = {query.id: query for query in (ACCOUNT_QUERY, HEADER_QUERY, TIMED_QUERY)}
    queries = {**{pk: named[pk] for pks in lacking.missing.values() for pk in pks if pk in named}, **changed.queries}
    if of_trust:
        lacking = replace(lacking, trust=replace(lacking.trust or NOT_VOUCHED_FOR, **of_trust))
    lacking = replace(lacking, left_to_others=[pk for pk, query in queries.items() if query.is_left_to_others])
    return replace(changed, queries=queries, lacking=lacking if lacking.missing else None)


UNVOUCHED = seen(NOTHING_IN_REGISTRY, is_vouched_for=False)


def kinds(decision: Decision) -> list[str]:
    """Return names and steps of the actions that change something."""
    return [
        f"{type(action).__name__} {action.step}" if isinstance(action, Complete) else type(action).__name__
        for action in decision.actions
        if not isinstance(action, Complete) or action.queries
    ]


BLOCK_HASH, HEADER_DONE, ACCOUNT_DONE = (f"Complete {kind}" for kind in (AVAILABLE, HEADER, ACCOUNT))


@pytest.mark.parametrize(
    ("what", "then", "actions"),
    [
        pytest.param(
            seen(NOTHING_IN_REGISTRY, sent_for={BALANCE}), Continue(), [BLOCK_HASH], id="nothing is paid twice"
        ),
        pytest.param(
            seen(NOTHING_IN_REGISTRY, is_accumulating=True),
            Requeue(wait("header"), 0.5),
            [BLOCK_HASH],
            id="one header is enough",
        ),
        pytest.param(
            seen(NOTHING_IN_REGISTRY, is_accumulating=True, root_is_known=True),
            Continue(),
            [BLOCK_HASH, "Prove"],
            id="the header is mined",
        ),
        pytest.param(
            seen(NOTHING_IN_REGISTRY, failures=1),
            Fail(wait("reverted", count=1)),
            [BLOCK_HASH],
            id="it reverted",
        ),
        pytest.param(
            seen(NOTHING_IN_REGISTRY, view=RegistryView(ROOT, {})),
            Requeue(wait("other_state_root", block=7), 0.5),
            [],
            id="another root",
        ),
        pytest.param(
            seen(NOTHING_IN_REGISTRY, view=RegistryView(ROOT, {}), queries={}, missing={}),
            Continue(),
            [BLOCK_HASH],
            id="another root, but all is under way",
        ),
        pytest.param(
            seen(UNVOUCHED, queries={2: HEADER_QUERY}),
            FindPath(OWN, {BALANCE: [1]}),
            [HEADER_DONE, ACCOUNT_DONE],
            id="only the hash is not available yet",
        ),
        pytest.param(seen(UNVOUCHED, is_extending=True), FOR_PATH, [], id="one path at a time"),
        pytest.param(
            seen(UNVOUCHED, pause_after_failures=20),
            Requeue(wait("path_reverted"), 20),
            [],
            id="the last path reverted",
        ),
        pytest.param(
            seen(UNVOUCHED, trust=None, queries={}, missing={OF_TIME: [3]}),
            Requeue(wait("block_after", block=7), 3),
            [],
            id="when the block ended is not known yet",
        ),
        pytest.param(
            seen(TRUSTED, missing={}, contradiction=LIE),
            Fail(LIE),
            ["ShowPath", BLOCK_HASH, HEADER_DONE],
            id="another value",
        ),
        pytest.param(
            seen(TRUSTED, awaiting_header=[HEADER_QUERY], queries={2: HEADER_QUERY}, missing={OF_HEADER: [2]}),
            FindPath(OWN, {OF_HEADER: [2]}),
            ["ShowPath", BLOCK_HASH],
            id="the header's own facts need its hash",
        ),
        pytest.param(
            seen(TRUSTED, missing={BALANCE: [1], OF_HEADER: [2]}, header=OWN),
            FindPath(OWN, {OF_HEADER: [2]}),
            ["ShowPath", BLOCK_HASH, HEADER_DONE, HEADER_DONE, "Prove"],
            id="what needs no hash goes first",
        ),
        pytest.param(
            seen(TRUSTED, missing={BALANCE: [1], OF_TIME: [3]}, trust=None),
            Continue(),
            ["ShowPath", BLOCK_HASH, HEADER_DONE, HEADER_DONE, "Prove"],
            id="what needs no hash does not wait for the next block",
        ),
        pytest.param(
            seen(NOTHING_IN_REGISTRY, queries={}, missing={OF_TIME: [3]}, header=header(timestamp=1005)),
            FindTime(1005, [3]),
            [BLOCK_HASH],
            id="the time is another block's now",
        ),
        pytest.param(
            seen(NOTHING_IN_REGISTRY, queries={}, missing={OF_TIME: [3]}, timestamp=1006, header=NEXT),
            FindTime(1005, [3]),
            [BLOCK_HASH],
            id="the time is an earlier block's now",
        ),
        pytest.param(
            seen(NOTHING_IN_REGISTRY, queries={}, missing={OF_TIME: [3]}, timestamp=1005, header=NEXT),
            Continue(),
            [BLOCK_HASH, "ProveTime"],
            id="the time is the block's very own",
        ),
        pytest.param(
            seen(NOTHING_IN_REGISTRY, queries={}, missing={OF_TIME: [3]}, header=header(parent=ROOT)),
            Requeue(wait("reorganised"), 3),
            [BLOCK_HASH],
            id="the next block is of another branch",
        ),
    ],
)
def test_what_the_registry_lacks(what, then, actions):
    if isinstance(then, FindPath) and what.root_is_confirmed:
        what = seen(what, header=OWN)
    decision = decide.prove(what)
    assert decision.then == then
    assert kinds(decision) == actions


def test_what_is_sent():
    def sent(what: Observation) -> list[Any]:
        return [action for action in decide.prove(what).actions if isinstance(action, Prove | ProveTime)]

    assert sent(NOTHING_IN_REGISTRY) == [Prove({BALANCE: [1]}, root_is_known=False)]
    assert sent(TRUSTED) == [Prove({BALANCE: [1]}, root_is_known=True)]
    both: Missing = {BALANCE: [1], OF_HEADER: [2]}
    unvouched = seen(TRUSTED, missing=both, header=OWN)
    assert sent(unvouched) == [Prove({BALANCE: [1]}, root_is_known=True, is_optional=True)]
    assert sent(seen(unvouched, is_extending=True)) == sent(unvouched)
    assert decide.prove(seen(unvouched, is_extending=True)).then == Continue()
    assert decide.prove(seen(unvouched, pause_after_failures=9)).then == Continue()
    (prove,) = sent(NOTHING_IN_REGISTRY)
    assert prove.with_header
    (prove,) = sent(seen(unvouched, is_vouched_for=True))
    assert prove == Prove(both, root_is_known=True)
    # A header is sent only for users who need it, and not if such a user can't pay.
    assert prove.with_header
    assert not replace(prove, missing={BALANCE: [1]}).with_header
    assert sent(seen(TRUSTED, missing={BALANCE: [1], NONCE: [1]}, sent_for=[NONCE])) == [
        Prove({BALANCE: [1]}, root_is_known=True)
    ]
    timed = seen(NOTHING_IN_REGISTRY, queries={}, missing={OF_TIME: [3], BALANCE: [3]}, header=NEXT)
    assert sent(timed) == [ProveTime(1005, NEXT, [3])]
    with_another = seen(timed, missing={OF_TIME: [3], BALANCE: [3, 1]})
    otherwise = Prove({BALANCE: [1]}, root_is_known=False)
    assert sent(with_another) == [ProveTime(1005, NEXT, [3], otherwise=otherwise)]


def test_a_path_that_has_arrived_has_nothing_left():
    for what in (TRUSTED, seen(NOTHING_IN_REGISTRY, path_left=2)):
        assert decide.prove(what).actions[0] == ShowPath(0)


def test_steps_name_the_transactions_that_completed_them():
    open_queries = [ACCOUNT_QUERY, HEADER_QUERY, TIMED_QUERY]
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


@pytest.mark.parametrize(
    ("path_found", "then", "actions"),
    [
        (NotYet(wait("no_finality", source=1)), Requeue(wait("no_finality", source=1), 3), []),
        (
            Preparation(()),
            Requeue(wait("recording"), 0.5),
            [PreparePath(Preparation(()), [1, 2])],
        ),
    ],
)
def test_a_path(path_found, then, actions):
    find = FindPath(OWN, {BALANCE: [2, 1]})
    decision = decide.path(UNVOUCHED, find, path_found)
    assert (decision.then, list(decision.actions)) == (then, actions)


def test_a_path_waits_for_that_of_a_block_that_has_waited_longer():
    decision = decide.path(UNVOUCHED, FindPath(OWN, {BALANCE: [1]}), PathFound(HOPS, is_first=False))
    assert decision == Decision(FOR_PATH, [ShowPath(2, PathUnit.HOPS), Complete([1], AVAILABLE)])


def test_a_block_that_its_source_can_vouch_for_is_proven_with_that_and_waits_for_no_path():
    start = Start(7, (("0xsource", b"attest"),))
    prove = Prove({BALANCE: [1]}, root_is_known=False, is_alone=True, calls=start.calls)
    decision = decide.path(UNVOUCHED, FindPath(OWN, {BALANCE: [1]}), PathFound(start, is_first=False))
    assert decision == Decision(Continue(), [ShowPath(0, PathUnit.HOPS), Complete([1], AVAILABLE), prove])
    # If the facts need the next block, the call is a path.
    find = FindPath(NEXT, {BALANCE: [1]})
    assert decide.path(UNVOUCHED, find, PathFound(start)).actions[-1] == ExtendPath(start, NEXT, {BALANCE: [1]})


JUMP: HeaderParts = [b"the origin's header", BlockBranch(OLD_BLOCK, b"the branch")]
BY_JUMP = PathFound(Jump(header(100)), jump=JUMP)
SHOWN: list[Action] = [ShowPath(1, PathUnit.JUMPS, 100), Complete([1], AVAILABLE)]


def test_a_jump_goes_with_the_blocks_own_proof_and_waits_for_no_path():
    find = FindPath(OWN, {BALANCE: [1]})
    for is_extending in (False, True):
        what = seen(UNVOUCHED, is_extending=is_extending, may_jump=True)
        assert decide.prove(what).then == find
        prove = Prove({BALANCE: [1]}, root_is_known=False, jump=JUMP)
        assert decide.path(what, find, BY_JUMP) == Decision(Continue(), [*SHOWN, prove])
        # A block whose transaction has reverted shares no transaction.
        again = decide.path(seen(what, failures=1), find, BY_JUMP)
        assert again.actions[-1] == replace(prove, is_alone=True)
    # A jump from constants has no origin.
    constant = PathFound(Jump(), jump=JUMP[1:])
    shown = decide.path(UNVOUCHED, find, constant).actions[0]
    assert shown == ShowPath(1, PathUnit.JUMPS, None)


def test_a_jump_to_the_block_after_is_a_path():
    find = FindPath(NEXT, {BALANCE: [1]})
    decision = decide.path(UNVOUCHED, find, BY_JUMP)
    assert decision == Decision(FOR_PATH, [*SHOWN, ExtendPath(BY_JUMP.path, NEXT, {BALANCE: [1]}, JUMP)])
    # A path is under way already, so the decision only waits for it.
    extending = seen(UNVOUCHED, is_extending=True, may_jump=True)
    for outcome in (BY_JUMP, Preparation(())):
        assert decide.path(extending, find, outcome) == Decision(FOR_PATH)


def test_a_time_that_a_reorg_has_moved():
    def decided(block_of_time: BlockOfTime) -> Decision:
        return decide.time(NOTHING_IN_REGISTRY, FindTime(1005, [3]), block_of_time)

    gone = Requeue(wait("no_later_block", chain=1, time=1005), 3)
    assert decided(BlockOfTime(has_later=False)) == Decision(gone)
    for number in (None, 7):
        assert isinstance(decided(BlockOfTime(has_later=True, number=number)).then, Fail)
    reason = wait("time_moved", time=1005, block=6)
    moved = decided(BlockOfTime(has_later=True, number=6))
    assert moved == Decision(Requeue(reason, 0), [MoveToBlock([3], 6, str(reason))])


CHECKED = Checked(2, 50, HASH, header(50), False, 0.5)


def test_a_destination_that_was_reorganised():
    there = cast("Header", SimpleNamespace(hash=HASH))
    assert decide.checked(replace(CHECKED, header=there)) == Decision(Continue())
    behind = Requeue(wait("node_behind", chain=2, block=50), 0.5)
    assert decide.checked(replace(CHECKED, header=None)) == Decision(behind)
    assert decide.checked(replace(CHECKED, header=there, is_behind=True)) == Decision(behind)
    assert decide.checked(CHECKED) == Decision(FindWhatIsGone())
    reason = "The destination chain was reorganised: block 50 is another one now."
    untrusted = Gone(root_is_confirmed=False, proven=[1, 2], lacking_of_accounts=[2], registry="0x1")
    assert decide.gone(CHECKED, untrusted).actions == [
        Reopen([1, 2], HEADER, reason),
        Reopen((), ACCOUNT, reason),
        NoteChecked(),
    ]
    lacking = Gone(root_is_confirmed=True, proven=[7], lacking_of_header=[1], lacking_of_accounts=[2], registry="0x1")
    assert decide.gone(CHECKED, lacking).actions == [
        Reopen([1], HEADER, reason),
        Reopen([2], ACCOUNT, reason),
        NoteChecked(),
    ]
    assert decide.gone(CHECKED, Gone(root_is_confirmed=True, contradiction=LIE)) == Decision(Fail(LIE))


def test_the_header_of_the_source_chain():
    block = SourceBlock(1, 7, OWN, "", 3)
    assert decide.source_block(block) == Decision(Continue(), [TakeHeader(OWN)])
    assert decide.source_block(replace(block, stored_hash="0x" + OWN.hash.hex())) == Decision(Continue(), [])
    assert decide.source_block(replace(block, stored_hash="0x" + "99" * 32)).actions == [TakeHeader(OWN)]
    missing = replace(block, header=None, head=6, seconds=0)
    reason = wait("block_to_come", chain=1, block=7, head=6, last=None)
    assert decide.source_block(missing) == Decision(Requeue(reason, 3))
    lacking = wait("source_without_block", chain=1, block=7)
    assert decide.source_block(replace(missing, head=7)) == Decision(Fail(lacking))
    # A block far ahead is checked later, but within a minute, because a lagging node may catch up.
    assert decide.source_block(replace(missing, seconds=12)) == Decision(Requeue(reason, 12))
    assert decide.source_block(replace(missing, seconds=900)) == Decision(Requeue(reason, 60))


def test_what_was_fetched_is_stored():
    proofs = [Proven(AccountProof(address=ALICE), ())]
    decision = decide.fetched(Fetched(proofs, complete=[1]))
    assert decision == Decision(Continue(), [StoreProofs(proofs), Complete([1], INITIAL)])


PRUNED = wait("proof_refused", problem="Pruned.")
REFUSED = Unfetched(1, 7, {4: PRUNED}, refused=[4], refused_since=None, now=NOW)
REFUSED_YET = wait("rejected_in_ten_minutes", reason=PRUNED)
REJECTED = Reject(
    [4],
    RejectionCode.PROOF_UNAVAILABLE,
    wait("no_usable_proof", chain=1, block=7, reason=PRUNED),
    retryable=True,
)


@pytest.mark.parametrize(
    ("what", "then", "actions"),
    [
        (REFUSED, Fail(REFUSED_YET, (4,)), [NoteRefused(NOW)]),
        (replace(REFUSED, refused_since=NOW - timedelta(minutes=9)), Fail(REFUSED_YET, (4,)), []),
        (replace(REFUSED, refused_since=NOW - timedelta(minutes=10)), Continue(), [REJECTED]),
        (replace(REFUSED, refused=[], refused_since=NOW), Fail(PRUNED, (4,)), [NoteRefused(None)]),
    ],
)
def test_what_can_not_be_fetched(what, then, actions):
    decision = decide.unfetched(what)
    assert (decision.then, list(decision.actions)) == (then, actions)


OTHERS, OTHERS_TIMED = (
    replace(ACCOUNT_QUERY, id=4, is_left_to_others=True),
    replace(TIMED_QUERY, is_left_to_others=True),
)


@pytest.mark.parametrize(
    ("base", "then", "actions"),
    [
        pytest.param(seen(UNVOUCHED, failures=3, is_extending=True), Continue(), [], id="whatever is under way"),
        pytest.param(replace(NOTHING_IN_REGISTRY, gather_seconds=5), Continue(), [BLOCK_HASH], id="nothing gathers"),
    ],
)
def test_what_is_left_to_others_is_completed_and_never_sent(base, then, actions):
    decision = decide.prove(seen(base, awaiting_header=[OTHERS], queries={4: OTHERS}, missing={BALANCE: [4]}))
    assert (decision.then, kinds(decision)) == (then, actions)


def test_beside_what_is_left_to_others_only_the_rest_is_sent():
    queries = {1: ACCOUNT_QUERY, 4: OTHERS}
    both = seen(NOTHING_IN_REGISTRY, queries=queries, missing={BALANCE: [1, 4], NONCE: [4], OF_HEADER: [4]})
    (prove,) = [action for action in decide.prove(both).actions if isinstance(action, Prove)]
    assert prove.missing == {BALANCE: [1]}
    below = seen(both, root_is_known=True, is_vouched_for=False)
    assert below.lacking
    assert below.lacking.needing == {}
    assert decide.prove(below).then == Continue()
    unvouched = decide.prove(seen(both, is_vouched_for=False)).then
    assert unvouched == FindPath(OWN, {BALANCE: [1]})


@pytest.mark.parametrize(("following", "then"), [(NEXT, Continue()), (header(8, timestamp=1004), FindTime(1005, [3]))])
def test_a_time_that_others_prove_moves_with_a_reorg(following, then):
    what = seen(NOTHING_IN_REGISTRY, queries={3: OTHERS_TIMED}, missing={OF_TIME: [3]}, header=following)
    assert decide.prove(what).then == then


BEGUN = datetime(2026, 1, 1, 0, 0, 7, tzinfo=UTC)
GATHERING = replace(NOTHING_IN_REGISTRY, now=BEGUN, gather_seconds=5, waits_since=BEGUN)
MANY: Missing = {AccountFact(f"0x{number}", AccountField.BALANCE): [1] for number in range(51)}


@pytest.mark.parametrize(
    ("what", "waits"),
    [
        pytest.param(replace(GATHERING, now=BEGUN + timedelta(seconds=2)), 1, id="it has begun"),
        pytest.param(replace(GATHERING, now=BEGUN + timedelta(seconds=3)), None, id="it is over"),
        pytest.param(replace(GATHERING, now=BEGUN - timedelta(days=1)), None, id="the clock was set back"),
        pytest.param(seen(GATHERING, failures=1, attempts=1), None, id="it goes alone, because one reverted"),
        pytest.param(seen(GATHERING, missing=MANY), None, id="it fills a transaction"),
    ],
)
def test_what_is_little_waits_for_others(what, waits):
    decision = decide.prove(what)
    sent = [action for action in decision.actions if isinstance(action, Prove)]
    assert bool(sent) == (waits is None)
    if waits is not None:
        assert decision.then == Requeue(wait("gathering", seconds=5), waits)


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


def test_one_module_signs_two_reserve_for_it_and_the_monitor_goes_on():
    signing = "transactions/signing.py"
    assert users_of("sign_transaction", "tell_all") == {signing}
    reserving = {"transactions/sending.py", "transactions/replacement.py"}
    assert users_of("reserve_version", "reserve_cancellation") - {signing} == reserving
    going_on = users_of("send_reserved", "sign_and_store", "broadcast") - {signing}
    assert going_on == {*reserving, "transactions/transaction_monitor.py"}


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
