"""Counts the resources of a node's process: objects by type, memory, descriptors, threads, disk.

    cluster = OttlaCluster(tmp_path, node_classes={1: CountedNode})
    before = cluster.nodes[1].census()
    ...
    for growth in find_growth(before, cluster.nodes[1].census(), allowed): print(growth)

The node is an ordinary `ottla serve` that `probe.py` starts. The probe counts the objects in its process.
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
    """One count of all resources: objects by type, and descriptors by kind."""

    process: int
    objects: dict[str, int]
    descriptors: dict[str, int]
    figures: dict[str, int]
    """Threads, timers, allocated blocks, resident memory, disk."""


def minimum(counts: Sequence[Census]) -> Census:
    """Return the minimum of each figure over several counts of a process, which leaves out requests in flight."""
    assert len({count.process for count in counts}) == 1, "the counts are of several processes"
    return Census(
        process=counts[0].process,
        objects=_minimum([count.objects for count in counts]),
        descriptors=_minimum([count.descriptors for count in counts]),
        figures=_minimum([count.figures for count in counts]),
    )


def _minimum(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    names = {name for count in counts for name in count}
    return {name: min(count.get(name, 0) for count in counts) for name in names}


class CountedNode(ClusterNode):
    """A node whose process counts its objects on request."""

    _connection: socket.socket | None = None

    def program(self) -> Sequence[str]:
        return sys.executable, str(PROBE), str(*self.descriptors)

    def launch(self) -> None:
        self.disconnect()
        self._connection, inherited = socket.socketpair()
        self._connection.settimeout(ANSWER_S)
        with inherited:
            self.descriptors = (inherited.fileno(),)
            super().launch()

    def disconnect(self) -> None:
        """Close the connection to the probe."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def census(self) -> Census:
        """Count all resources, which pauses the node for a fraction of a second."""
        assert self.process is not None, f"node {self.id} does not run"
        answer = self._query({"query": "census"})
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

    def find_holders(self, kind: str, text: str = "") -> list[str]:
        """Return the chain of references to the newest object of a type, or to a value that contains a text."""
        return list(self._query({"query": "holders", "kind": kind, "text": text}))

    def _query(self, query: dict[str, str]) -> Any:
        assert self._connection is not None
        self._connection.sendall(json.dumps(query).encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            chunk = self._connection.recv(1 << 20)
            assert chunk, f"node {self.id} ended: {self.log_tail()}"
            answer += chunk
        return json.loads(answer)


def _descriptors(pid: int) -> dict[str, int]:
    """Count the descriptors of a process by kind: files, sockets and others."""
    targets = _descriptor_targets(pid)
    return dict(Counter("files" if target.startswith("/") else target.partition(":")[0] for target in targets))


def _descriptor_targets(pid: int) -> Iterator[str]:
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was just closed
            yield str(link.readlink())


def _resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def disk_bytes(folder: Path) -> int:
    """Return the disk usage of a folder, without holes in files and without space preallocated for appends."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # it was just deleted
                status = Path(path, name).stat()
                total += min(status.st_size, status.st_blocks * 512)
    return total


OF_TYPES: Final[Mapping[str, int]] = {
    # Request meters keep up to 256 requests of each API and version, each as five numbers.
    "int": 30_000,
    "tuple": 6_000,
    "float": 1_000,
    # Caches have the last 10,000 client ids and the hashes of the last 16,384 members.
    "str": 1_500,
    "bytes": 1_000,
    "functools._lru_list_elem": 1_500,
    # The codec and the meters of a request type are created with the first request.
    "builtin_function_or_method": 300,
    "cell": 300,
    "dict": 250,
    "function": 250,
    "list": 400,
    "method": 300,
    "_struct.Struct": 100,
    # Expiration times stay until they are reached, even if nothing is left to expire.
    "ottla.replication.purgatory._Slot": 700,
    "ottla.metadata.controller.state_tracker.Deletion": 5_000,
    # Up to 64 deadlines of a coordinator may have been replaced.
    "ottla.coordinators.groups.timers.TimerKey": 250,
}
"""The allowed growth of types that are bounded and may not have reached their bound yet."""

PARTS: Final[Mapping[str, Mapping[str, int]]] = {
    # A standby controller tracks topic deletions for a minute, and at most 5,000 of them.
    "ottla.metadata.controller.state_tracker.Deletion": {"array.array": 3, "dict": 7, "str": 8, "bytes": 4},
}
"""The further objects that belong to each object of a bounded type."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """The allowed growth between two counts."""

    objects: int = 60
    """Of each type that is not in `of_types`."""
    share: float = 0.02
    """Of each type, in proportion to its earlier count."""
    descriptors: int = 20
    """Active logs may have a segment more or less."""
    threads: int = 4
    timers: int = 20
    blocks: int = 40_000
    memory_bytes: int = 32 << 20
    disk_bytes: int = 16 << 20
    of_types: Mapping[str, int] = field(default_factory=lambda: OF_TYPES)

    def for_type(self, name: str, before: int) -> float:
        """Return the allowed growth of a type."""
        return self.of_types.get(name, self.objects) + self.share * before

    def for_figure(self, name: str) -> int:
        """Return the allowed growth of a figure."""
        return {
            "threads": self.threads,
            "timers": self.timers,
            BLOCKS: self.blocks,
            MEMORY: self.memory_bytes,
            DISK: self.disk_bytes,
        }[name]


@dataclass(frozen=True, slots=True)
class Growth:
    """A resource that grew by more than is allowed."""

    name: str
    before: int
    after: int

    def __str__(self) -> str:
        return f"{self.name}: {self.before:,} → {self.after:,} (+{self.after - self.before:,})"


def find_growth(before: Census, after: Census, allowed: Allowance) -> list[Growth]:
    """Return the resources that grew too much between two counts, the largest growth first."""
    growth: list[Growth] = []
    parts: Counter[str] = Counter()
    for owner, parts_of_owner in PARTS.items():
        added = max(after.objects.get(owner, 0) - before.objects.get(owner, 0), 0)
        parts.update({name: added * number for name, number in parts_of_owner.items()})
    for name, count in after.objects.items():
        earlier = before.objects.get(name, 0)
        if count - earlier > allowed.for_type(name, earlier) + parts[name]:
            growth.append(Growth(name, earlier, count))
    growth.sort(key=lambda item: item.before - item.after)
    for name, count in after.descriptors.items():
        earlier = before.descriptors.get(name, 0)
        if count - earlier > allowed.descriptors:
            growth.append(Growth(f"descriptors: {name}", earlier, count))
    for name, count in after.figures.items():
        if count - before.figures[name] > allowed.for_figure(name):
            growth.append(Growth(name, before.figures[name], count))
    return growth
