"""A benchmark case: a function that does the work once and returns figures, and how often to run it.

    @case("produce-lz4", "500 k × 1,000 B, lz4", quick=True)
    def produce_lz4(trial: Trial) -> Figures:
        return produce(trial, records=500_000, record_bytes=1_000, settings={"compression.type": "lz4"})

The runner starts a cluster of each system with `nodes` nodes, calls the function for them in turns, and compares the
figures. The group of a case is its name up to the first dash. A case with `sizes` runs at each size (`trial.x`) and
becomes a curve. A case with `needs` runs only on systems that serve those APIs. A case with `nodes=0` starts its own
servers (`trial.system`, `trial.folder`). Cases of a group with `shares=True` run one after the other on the same
servers.
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
"""FindCoordinator, offset commits and the classic group protocol."""
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

# The goals for Ottla, as ratios to Kafka.
LOAD_GOALS = {"server_cpu_s": 0.6, "records_per_s": 1.0, "p99_ms": 0.7}
MEMORY_GOALS = {"rss_mb": 1 / 5}
CREATION_GOALS = {"time_ms": 1 / 3}
START_GOALS = {"time_ms": 1 / 6}


@dataclass(frozen=True)
class Case:
    """The work of a case, the servers that it needs, and its goals."""

    name: str
    title: str
    work: "Callable[[Trial], Figures]"
    quick: bool = False
    nodes: int = 1
    needs: frozenset[int] = frozenset()
    goals: dict[str, float] = field(default_factory=dict)
    """Figure → maximum ratio of Ottla to Kafka, or minimum ratio if more is better."""
    limits: dict[str, float] = field(default_factory=dict)
    """Figure → maximum of Ottla's value."""
    rises: dict[str, float] = field(default_factory=dict)
    """Figure → maximum ratio of Ottla's value at the largest size to that at the smallest."""
    settings: dict[str, str] = field(default_factory=dict)
    lives: int = 1
    """How many times a full run starts fresh servers. The first round of each life is cold."""
    warm_rounds: int = 2
    axis: str | None = None
    sizes: tuple[int, ...] = ()
    quick_sizes: tuple[int, ...] = ()
    named_only: bool = False
    """Whether the case takes too long for a full run, so that it runs only by name."""
    secured: bool = False
    """Whether the servers also have a TLS listener."""
    shares: bool = False
    """Whether the case may reuse the servers of the previous case, if that one shares too and has the same settings."""
    clients_stay: bool = False
    """Whether clients outlive a round, as a Spark session does. The first round is then cold on warm servers too."""
    seconds: float = 25.0
    """The approximate duration with the fewest rounds on two cores, which a full run reserves for the case."""

    @property
    def group(self) -> str:
        return self.name.partition("-")[0]

    def can_follow(self, other: "Case") -> bool:
        """Whether this case can run on the servers of the other case."""
        return self.shares and other.shares and self._server_key == other._server_key

    @property
    def _server_key(self) -> tuple[object, ...]:
        return self.group, self.nodes, self.settings, self.secured

    @property
    def server_settings(self) -> dict[str, str]:
        """The server settings of this case in addition to the common ones."""
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
    """Declare a case; the decorated function does its work once."""

    def declare(work: "Callable[[Trial], Figures]") -> "Callable[[Trial], Figures]":
        assert name not in CASES, f"two cases have the name {name}"
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
    """Return all cases by name, in the order in which they run."""
    for module in MODULES:
        import_module(f"bench.cases.{module}")
    return CASES


@dataclass
class Trial:
    """One run of a case on one system: the cluster, the scale, and methods to measure."""

    system: System
    folder: Path
    scale: float
    x: int | None = None
    running_cluster: Cluster | None = None

    @property
    def cluster(self) -> Cluster:
        assert self.running_cluster is not None, "a case with nodes=0 starts its own cluster"
        return self.running_cluster

    def scaled(self, count: int, minimum: int = 1) -> int:
        """Return a count multiplied by the scale of this run."""
        return max(minimum, round(count * self.scale))

    @contextmanager
    def topic(self, partitions: int = 1) -> Iterator[str]:
        """Create a topic, and delete it with its files afterwards."""
        name = f"bench-{next(_names)}"
        self.cluster.create_topics([name], partitions)
        time.sleep(0.2)  # the servers finish the creation, which is not measured
        try:
            yield name
        finally:
            self.cluster.delete_topics([name])

    def new_topic(self, partitions: int = 1) -> str:
        """Create a topic that lives as long as the cluster."""
        name = f"bench-{next(_names)}"
        self.cluster.create_topics([name], partitions)
        return name

    @contextmanager
    def measured(self) -> Iterator[Figures]:
        """Measure the servers while the body runs; the body adds its own figures."""
        figures: Figures = {}
        before = measure.disk_bytes(self.cluster.folder)
        with measure.measured(self.cluster.pids, figures):
            yield figures
        figures["disk_mb"] = max(0, measure.disk_bytes(self.cluster.folder) - before) / measure.MEGABYTE
