"""What a worker has in hand: groups of tasks, each group in a thread, where its tasks run side by side.

Tasks of a group share their exchanges with nodes (`chains.together`), and what they send. So they are of one kind and
ask the same chains.
"""

from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from config.configured_chains import get_chains
from proving.worker.due import Queue, Task

# Tasks of a group. More save little, and the first ones would wait for the last.
_MOST_TOGETHER = 64
# What tasks of one user ask nodes for, where there are others in the group: a group is done when all of it is.
_MOST_BESIDE_OTHERS = 8
# What they ask nodes for in all. While they wait for an exchange, none extends its lease.
_MOST_SIZE = 300


@dataclass(eq=False)
class Group:
    tasks: list[Task]
    running: Future[None] | None = field(default=None)
    """None until it begins: until then tasks may join."""

    @property
    def is_long(self) -> bool:
        return self.tasks[0].is_long

    @property
    def may_grow(self) -> bool:
        """Return whether others may join."""
        first = self.tasks[0]
        return (
            self.running is None
            and not (first.is_long or first.is_large)
            and len(self.tasks) < _MOST_TOGETHER
            and self.size < _MOST_SIZE
        )

    @property
    def size(self) -> int:
        """Return how much its tasks ask nodes for in all."""
        return sum(task.size for task in self.tasks)

    @property
    def chains(self) -> frozenset[int]:
        """Return the chains whose nodes it asks."""
        return self.tasks[0].chains

    @property
    def sources(self) -> frozenset[int]:
        return self.tasks[0].sources

    def may_join(self, task: Task) -> bool:
        first = self.tasks[0]
        return (
            self.may_grow
            and not (task.is_long or task.is_large)
            and self._is_quick_for_all(task)
            and self.size + task.size <= _MOST_SIZE
            and (task.kind, task.lane, task.sources) == (first.kind, first.lane, first.sources)
        )

    def _is_quick_for_all(self, task: Task) -> bool:
        """Return whether none of several users, the task's among them, brings much: others would wait for it."""
        sizes: dict[int | None, list[int]] = defaultdict(list)
        for each in (*self.tasks, task):
            sizes[each.user].append(each.size)
        return len(sizes) == 1 or all(len(own) == 1 or sum(own) <= _MOST_BESIDE_OTHERS for own in sizes.values())

    def could_join(self, queue: Queue) -> bool:
        """Return whether something of the queue may be of this group's kind."""
        first = self.tasks[0]
        _, kind, lane = queue
        return self.may_grow and (kind, lane) == (first.kind, first.lane)


class Groups:
    """The groups that a process works on, in a bounded number of threads. The rules leave threads to others."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self.all: list[Group] = []

    @property
    def tasks(self) -> list[Task]:
        return [task for group in self.all for task in group.tasks]

    @property
    def running(self) -> "list[Future[None]]":
        return [group.running for group in self.all if group.running is not None]

    @property
    def are_full(self) -> bool:
        """Return whether no thread is left, nor room in a group that has not begun."""
        return len(self.all) >= self._threads and not any(group.may_grow for group in self.all)

    def forget_done(self) -> None:
        self.all = [group for group in self.all if group.running is None or not group.running.done()]

    def begin(self, start: Callable[[Group], Future[None]]) -> None:
        """Start what has not begun."""
        for group in self.all:
            if group.running is None:
                group.running = start(group)

    def has_room(self, queue: Queue) -> bool:
        """Return whether anything of the queue could be taken up."""
        return any(group.could_join(queue) for group in self.all) or self._leaves_threads_beside(queue)

    def take(self, task: Task) -> bool:
        """Take it up, unless it is in hand or others need the threads; whether that was done."""
        if any(task in group.tasks for group in self.all):
            return False
        for group in self.all:
            if group.may_join(task):
                group.tasks.append(task)
                return True
        if not self._leaves_threads(task):
            return False
        self.all.append(Group([task]))
        return True

    def _leaves_threads_beside(self, queue: Queue) -> bool:
        """Return whether threads are left for anything of the queue: beside a chain whose nodes hang, and one user."""
        user, _, lane = queue
        of_user = sum(any(task.user == user for task in group.tasks) for group in self.all)
        return (
            len(self.all) < self._threads
            and self._chains_have_room(frozenset(lane))
            # Groups are large: with more than half, a user alone is hardly faster, and the others are twice as slow.
            and (user is None or of_user < max(1, self._threads // 2))
        )

    def _leaves_threads(self, task: Task) -> bool:
        """Return whether threads are left to others: beside a chain whose nodes hang, what takes long, and one user."""
        long = [group.tasks[0].user for group in self.all if group.is_long]
        return (
            self._leaves_threads_beside(task.queue)
            and self._chains_have_room(task.sources)
            # It takes up the room of each, and waits for one of them.
            and not (len(task.sources) > 1 and any(len(group.sources) > 1 for group in self.all))
            and not (task.is_long and (len(long) >= max(1, self._threads // 2) or task.user in long))
        )

    def _chains_have_room(self, chains: frozenset[int]) -> bool:
        half = max(1, self._threads // 2)
        return all(self._asking(chain) < half for chain in chains - _asked_by_all())

    def _asking(self, chain: int) -> int:
        """Return how many of the groups ask the chain's nodes."""
        return sum(chain in group.chains for group in self.all)


def _asked_by_all() -> frozenset[int]:
    """Return the chains that are in every connection: without them nothing goes on anyway."""
    pairs = [frozenset({each.source_id, each.destination_id}) for each in get_chains().connections]
    return frozenset.intersection(*pairs) if pairs else frozenset()
