"""What a node's process holds at a moment: objects by type, memory, descriptors, threads, disk.

    nodes = OttlaCluster(tmp_path, node_classes={1: CountedNode})
    before = nodes.nodes[1].census()
    ...
    for growth in grown(before, nodes.nodes[1].census(), allowed): print(growth)

The node is an ordinary `ottla serve`, started by `probe.py`, which answers for it.
"""

import json
import os
import socket
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.support.ottla_cluster import ClusterNode

PROBE: Final = Path(__file__).with_name("probe.py")
ANSWER_S: Final = 120.0
TIMERS: Final = ("uvloop.loop.TimerHandle", "asyncio.events.TimerHandle")
MEMORY, BLOCKS, DISK = "memory bytes", "allocated blocks", "disk bytes"


@dataclass(frozen=True, slots=True)
class Census:
    """One count of everything. Objects are named by their types, descriptors by what they are of."""

    process: int
    objects: dict[str, int]
    descriptors: dict[str, int]
    figures: dict[str, int]
    """Threads, timers, allocated blocks, resident memory, disk."""


def least(counts: Sequence[Census]) -> Census:
    """The least of everything, of some counts of one process: a request that was under way is not in all of them."""
    assert len({count.process for count in counts}) == 1, "the counts are of one process"
    return Census(
        process=counts[0].process,
        objects=_least([count.objects for count in counts]),
        descriptors=_least([count.descriptors for count in counts]),
        figures=_least([count.figures for count in counts]),
    )


def _least(values: Sequence[Mapping[str, int]]) -> dict[str, int]:
    names = {name for each in values for name in each}
    return {name: min(each.get(name, 0) for each in values) for name in names}


class CountedNode(ClusterNode):
    """A node whose process can be asked what it holds."""

    _asking: socket.socket | None = None

    def program(self) -> Sequence[str]:
        return sys.executable, str(PROBE), str(*self.descriptors)

    def launch(self) -> None:
        self.hang_up()
        self._asking, inherited = socket.socketpair()
        self._asking.settimeout(ANSWER_S)
        with inherited:
            self.descriptors = (inherited.fileno(),)
            super().launch()

    def hang_up(self) -> None:
        """Ask nothing more."""
        if self._asking is not None:
            self._asking.close()
            self._asking = None

    def census(self) -> Census:
        """Counts everything; the node stands still for that, which takes part of a second."""
        assert self.process is not None, f"node {self.id} does not run"
        answer = self._ask({"ask": "census"})
        objects = answer["objects"]
        pid = self.process.pid
        return Census(
            process=pid,
            objects=objects,
            descriptors=_descriptors(pid),
            figures={
                "threads": sum(1 for _ in Path(f"/proc/{pid}/task").iterdir()),
                "timers": sum(objects.get(name, 0) for name in TIMERS),
                BLOCKS: answer["blocks"],
                MEMORY: _resident_bytes(pid),
                DISK: disk_bytes(self.directory),
            },
        )

    def holders(self, kind: str, text: str = "") -> list[str]:
        """The newest object of a type, what holds it, what holds that, and so on; or what holds a value with a text."""
        return list(self._ask({"ask": "holders", "kind": kind, "text": text}))

    def _ask(self, question: dict[str, str]) -> Any:
        assert self._asking is not None
        self._asking.sendall(json.dumps(question).encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            chunk = self._asking.recv(1 << 20)
            assert chunk, f"node {self.id} ended: {self.log_tail()}"
            answer += chunk
        return json.loads(answer)


def _descriptors(pid: int) -> dict[str, int]:
    """How many there are of each sort: sockets, files of a directory, others."""
    return dict(Counter("files" if name.startswith("/") else name.partition(":")[0] for name in _targets(pid)))


def _targets(pid: int) -> Iterator[str]:
    """What the descriptors of a process are of."""
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed meanwhile
            yield str(each.readlink())


def _resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def disk_bytes(folder: Path) -> int:
    """The room that files take, whatever their sizes say; room set aside for appends is left out."""
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # it was deleted meanwhile
                status = Path(where, name).stat()
                total += min(status.st_size, status.st_blocks * 512)
    return total


OF_TYPES: Final[Mapping[str, int]] = {
    # The meters of requests keep up to 256 requests of each kind and version, as five numbers each.
    "int": 30_000,
    "tuple": 6_000,
    "float": 1_000,
    # The last 10,000 client ids and the hashes of the last 16,384 members are remembered.
    "str": 1_500,
    "bytes": 1_000,
    "functools._lru_list_elem": 1_500,
    # What writes and reads a kind of request is compiled when the first one comes, and gets meters.
    "builtin_function_or_method": 300,
    "cell": 300,
    "dict": 250,
    "function": 250,
    "list": 400,
    "method": 300,
    "_struct.Struct": 100,
    # A time at which something may expire stays until then, though nothing that expires is left.
    "ottla.replication.purgatory._Slot": 700,
    "ottla.metadata.controller.state_tracker.Deletion": 5_000,
    # Up to 64 of a coordinator's deadlines were replaced by others.
    "ottla.coordinators.groups.timers.TimerKey": 250,
}
"""What is bounded, and may grow until it has reached its bound."""

PARTS: Final[Mapping[str, Mapping[str, int]]] = {
    # A standby controller tracks deletions of topics for a minute, and 5,000 of them at most.
    "ottla.metadata.controller.state_tracker.Deletion": {"array.array": 3, "dict": 7, "str": 8, "bytes": 4},
}
"""What else there is for each object of a type that is bounded."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """How much more there may be at the later of two moments."""

    objects: int = 60
    """Of each type that has no allowance of its own."""
    share: float = 0.02
    """Of each type, of those that there were before."""
    descriptors: int = 20
    """Logs that are written to have a segment more or less."""
    threads: int = 4
    timers: int = 20
    blocks: int = 40_000
    memory_bytes: int = 32 << 20
    disk_bytes: int = 16 << 20
    of_types: Mapping[str, int] = field(default_factory=lambda: OF_TYPES)

    def of_type(self, name: str, before: int) -> float:
        """By how much objects of a type may grow."""
        return self.of_types.get(name, self.objects) + self.share * before

    def of(self, name: str) -> int:
        """What a figure may grow by."""
        return {
            "threads": self.threads,
            "timers": self.timers,
            BLOCKS: self.blocks,
            MEMORY: self.memory_bytes,
            DISK: self.disk_bytes,
        }[name]


@dataclass(frozen=True, slots=True)
class Growth:
    """Something of which there is more than may be."""

    what: str
    before: int
    after: int

    def __str__(self) -> str:
        return f"{self.what}: {self.before:,} → {self.after:,} (+{self.after - self.before:,})"


def grown(before: Census, after: Census, allowed: Allowance) -> list[Growth]:
    """What has grown between two moments at the same point of the cycle; the largest first."""
    found: list[Growth] = []
    parts: Counter[str] = Counter()
    for owner, held in PARTS.items():
        more = max(after.objects.get(owner, 0) - before.objects.get(owner, 0), 0)
        parts.update({name: more * number for name, number in held.items()})
    for name, count in after.objects.items():
        earlier = before.objects.get(name, 0)
        if count - earlier > allowed.of_type(name, earlier) + parts[name]:
            found.append(Growth(name, earlier, count))
    found.sort(key=lambda growth: growth.before - growth.after)
    for name, count in after.descriptors.items():
        earlier = before.descriptors.get(name, 0)
        if count - earlier > allowed.descriptors:
            found.append(Growth(f"descriptors: {name}", earlier, count))
    for name, count in after.figures.items():
        if count - before.figures[name] > allowed.of(name):
            found.append(Growth(name, before.figures[name], count))
    return found
