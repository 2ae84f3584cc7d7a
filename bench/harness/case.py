"""A case: what both systems are asked to do, and how often. One function does the work once and gives figures.

    @case("produce-lz4", "500 k × 1,000 B, lz4", quick=True)
    def produce_lz4(trial: Trial) -> Figures:
        return produce(trial, records=500_000, record_bytes=1_000, settings={"compression.type": "lz4"})

The runner starts a cluster of each system (`nodes` says how large), calls the function in turns, and compares. The
group of a case is its name up to the first dash. A case with `sizes` runs at each of them (`trial.x`) and becomes a
curve. A case with `needs` runs on systems that serve those APIs. A case with `nodes=0` starts what it wants by itself
(`trial.system`, `trial.folder`). Cases of a group that say `shares=True` follow each other on the same servers.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from bench.harness import measure, tls_listener
from bench.harness.figures import Figures
from bench.harness.systems import Cluster, System
from ottla.protocol.messages.apis import ApiKey

GROUPS = frozenset(
    {
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.FIND_COORDINATOR,
        ApiKey.JOIN_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.SYNC_GROUP,
    }
)
"""Commits, FindCoordinator and the classic group protocol."""
CONSUMER_GROUPS = GROUPS | {ApiKey.CONSUMER_GROUP_HEARTBEAT}
SHARE_GROUPS = frozenset({ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE})
TRANSACTIONS = frozenset(
    {
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
    }
)
MODULES = (
    *("produce", "consume", "latency", "mixed", "start", "topics", "groups", "transactions"),
    *("tls", "spark", "cluster", "controller", "idle", "growth"),
)

# What is asked of Ottla, as ratios to Kafka.
LOAD_GOALS = {"server_cpu_s": 0.6, "records_per_s": 1.0, "p99_ms": 0.7}
MEMORY_GOALS = {"rss_mb": 1 / 5}
CREATION_GOALS = {"time_ms": 1 / 3}
START_GOALS = {"time_ms": 1 / 6}


@dataclass(frozen=True)
class Case:
    """What to run, on what, how often."""

    name: str
    title: str
    work: "Callable[[Trial], Figures]"
    quick: bool = False
    nodes: int = 1
    needs: frozenset[int] = frozenset()
    goals: dict[str, float] = field(default_factory=dict)
    """The most (of what is better if there is more of it, the least) that Ottla's figures may be of Kafka's."""
    limits: dict[str, float] = field(default_factory=dict)
    """The most that Ottla's figures may be."""
    rises: dict[str, float] = field(default_factory=dict)
    """The most that Ottla's figures at the largest size may be of those at the smallest."""
    settings: dict[str, str] = field(default_factory=dict)
    lives: int = 1
    """How often the servers are started afresh in a full run; the first round of each life is cold."""
    warm_rounds: int = 2
    axis: str | None = None
    sizes: tuple[int, ...] = ()
    quick_sizes: tuple[int, ...] = ()
    named_only: bool = False
    """Whether it takes too long for a full run: it is run by its name."""
    secured: bool = False
    """Whether there is a listener with TLS, too."""
    shares: bool = False
    """Whether it goes on with the servers of the case before, where that shares too and they are set the same."""
    clients_stay: bool = False
    """Whether clients outlive a round, as a session of Spark does: its first round is cold on warm servers, too."""
    seconds: float = 25.0
    """What it takes with the fewest rounds, about, on two cores: what a full run sets aside for it."""

    @property
    def group(self) -> str:
        return self.name.partition("-")[0]

    def can_follow(self, other: "Case") -> bool:
        """Whether the servers of the other will do for this one."""
        return self.shares and other.shares and self._servers == other._servers

    @property
    def _servers(self) -> tuple[object, ...]:
        return self.group, self.nodes, self.settings, self.secured

    @property
    def server_settings(self) -> dict[str, str]:
        """What its servers are set to beside what all have."""
        return {**self.settings, **(tls_listener.server_settings() if self.secured else {})}


CASES: dict[str, Case] = {}
_names = itertools.count(1)


def case(
    name: str,
    title: str,
    *,
    quick: bool = False,
    nodes: int = 1,
    needs: frozenset[int] = frozenset(),
    goals: dict[str, float] | None = None,
    limits: dict[str, float] | None = None,
    rises: dict[str, float] | None = None,
    settings: dict[str, str] | None = None,
    lives: int = 1,
    warm_rounds: int = 2,
    axis: str | None = None,
    sizes: tuple[int, ...] = (),
    quick_sizes: tuple[int, ...] = (),
    named_only: bool = False,
    secured: bool = False,
    shares: bool = False,
    clients_stay: bool = False,
    seconds: float = Case.seconds,
) -> "Callable[[Callable[[Trial], Figures]], Callable[[Trial], Figures]]":
    """Declare a case: the function below does its work once."""

    def declare(work: "Callable[[Trial], Figures]") -> "Callable[[Trial], Figures]":
        assert name not in CASES, f"two cases are called {name}"
        CASES[name] = Case(
            name,
            title,
            work,
            quick=quick,
            nodes=nodes,
            needs=needs,
            goals=goals or {},
            limits=limits or {},
            rises=rises or {},
            settings=settings or {},
            lives=lives,
            warm_rounds=warm_rounds,
            axis=axis,
            sizes=sizes,
            quick_sizes=quick_sizes,
            named_only=named_only,
            secured=secured,
            shares=shares,
            clients_stay=clients_stay,
            seconds=seconds,
        )
        return work

    return declare


def all_cases() -> dict[str, Case]:
    """All cases by name, in the order in which they run."""
    for module in MODULES:
        import_module(f"bench.cases.{module}")
    return CASES


@dataclass
class Trial:
    """One run of a case on one system: the cluster, the scale, and the means to measure."""

    system: System
    folder: Path
    scale: float
    x: int | None = None
    running_cluster: Cluster | None = None

    @property
    def cluster(self) -> Cluster:
        assert self.running_cluster is not None, "this case starts its clusters by itself"
        return self.running_cluster

    def scaled(self, count: int, least: int = 1) -> int:
        """A number of records as this run's scale has it."""
        return max(least, round(count * self.scale))

    @contextmanager
    def topic(self, partitions: int = 1) -> Iterator[str]:
        """A fresh topic, gone afterwards with its files."""
        name = f"bench-{next(_names)}"
        self.cluster.create_topics([name], partitions)
        time.sleep(0.2)  # what the creation has left to do is not to be measured
        try:
            yield name
        finally:
            self.cluster.delete_topics([name])

    def new_topic(self, partitions: int = 1) -> str:
        """A topic that stays as long as the cluster."""
        name = f"bench-{next(_names)}"
        self.cluster.create_topics([name], partitions)
        return name

    @contextmanager
    def measured(self) -> Iterator[Figures]:
        """Figures of the servers while the work inside runs; the work adds its own."""
        figures: Figures = {}
        there = measure.disk_bytes(self.cluster.folder)
        with measure.measured(self.cluster.pids, figures):
            yield figures
        figures["disk_mb"] = max(0, measure.disk_bytes(self.cluster.folder) - there) / measure.MEGABYTE
