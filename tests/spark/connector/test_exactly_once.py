"""Exactly-once writes against real nodes, with failures of tasks and drivers at the worst moments and at random."""

import contextlib
import random
import uuid
from collections import Counter

import pyarrow as pa
import pytest

from ottla.protocol.errors import InvalidProducerEpoch, ProducerFenced
from ottla.spark.connector import exactly_once
from ottla.spark.connector.cluster import shared_cluster
from ottla.spark.connector.exactly_once import CommitLost, Job, abort, commit_batch, commit_once, prepare
from ottla.spark.connector.transactions import Transaction, TransactionCalls
from ottla.spark.connector.write_options import WriteOptions, parse_write_options
from tests.spark.clusters import Cluster


class DriverDied(Exception):
    """Simulates the death of the driver."""


class Query:
    """A streaming query that writes the number of its batch and task, and may die anywhere."""

    def __init__(self, cluster: Cluster, partitions: int = 2) -> None:
        self.cluster = cluster
        self.topic = cluster.new_topic(partitions)
        self.options: WriteOptions = parse_write_options(cluster.options(topic=self.topic))
        self.name = f"query-{uuid.uuid4().hex[:8]}"
        self.restart()

    def restart(self) -> None:
        """Start a new driver, which has no state but that of the cluster."""
        self.run = uuid.uuid4().hex[:8]
        exactly_once._drivers.clear()

    def job(self, batch: int) -> Job:
        return Job(self.name, self.run, batch)

    def task(self, batch: int, task: int, attempt: int = 0) -> Transaction:
        rows = pa.record_batch({"value": [f"{batch}-{task}-{number}" for number in range(3)]})
        count, transaction = prepare(self.options, self.job(batch), task, attempt, [rows])
        assert count == 3
        assert transaction is not None
        return transaction

    def commit(self, batch: int, transactions: list[Transaction]) -> None:
        commit_batch(self.options, self.job(batch), transactions)

    def decide_only(self, batch: int, transactions: list[Transaction]) -> None:
        """Die between the decision and the commits, if there is anything to decide."""

        def die(*_: object, ids_may_have_expired: bool = False) -> None:
            if ids_may_have_expired:  # a recovering driver first commits what the last one decided
                real(*_, ids_may_have_expired=True)  # type: ignore[arg-type]
            else:
                raise DriverDied

        real = exactly_once._commit
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(DriverDied):
            patch.setattr(exactly_once, "_commit", die)
            self.commit(batch, transactions)

    def written(self, *, committed: bool = True) -> Counter[str]:
        return Counter(row["value"].decode() for row in self.cluster.consume(self.topic, committed=committed))

    def expected(self, batches: int, tasks: int) -> Counter[str]:
        return Counter(f"{b}-{t}-{number}" for b in range(batches) for t in range(tasks) for number in range(3))


def test_rows_are_invisible_before_the_commit(cluster: Cluster) -> None:
    query = Query(cluster)
    prepared = [query.task(0, task) for task in range(3)]
    assert query.written() == Counter()
    query.commit(0, prepared)
    assert query.written() == query.expected(1, 3)


def test_only_successful_attempts_are_committed(cluster: Cluster) -> None:
    query = Query(cluster)
    loser, winner = query.task(0, 0), query.task(0, 0, attempt=1)
    other = query.task(0, 1)
    query.commit(0, [winner, other])
    assert loser.id != winner.id
    assert query.written() == query.expected(1, 2)
    assert len(query.written(committed=False)) == 6
    assert sum(query.written(committed=False).values()) == 9


def test_a_failed_task_aborts_its_transaction(cluster: Cluster) -> None:
    query = Query(cluster)

    def rows() -> "object":
        yield pa.record_batch({"value": ["half"]})
        raise ValueError("the next row is broken")

    with pytest.raises(ValueError, match="the next row is broken"):
        prepare(query.options, query.job(0), 0, 0, rows())  # type: ignore[arg-type]
    query.commit(0, [query.task(0, 0, attempt=1)])
    assert query.written() == query.expected(1, 1)


def test_a_task_without_rows_has_no_transaction(cluster: Cluster) -> None:
    query = Query(cluster)
    empty = pa.record_batch({"value": pa.array([], pa.string())})
    assert prepare(query.options, query.job(0), 0, 0, [empty]) == (0, None)
    query.commit(0, [])
    assert query.written() == Counter()


def test_the_next_driver_commits_a_decided_batch_once(cluster: Cluster) -> None:
    query = Query(cluster)
    query.commit(0, [query.task(0, task) for task in range(2)])
    query.decide_only(1, [query.task(1, task) for task in range(2)])
    query.restart()
    # Spark may rerun the batch with another number of tasks.
    query.commit(1, [query.task(1, task) for task in range(3)])
    assert query.written() == query.expected(2, 2)
    query.commit(2, [query.task(2, task) for task in range(2)])
    assert query.written() == query.expected(3, 2)


def test_the_next_driver_aborts_an_undecided_batch(cluster: Cluster) -> None:
    query = Query(cluster)
    query.commit(0, [query.task(0, 0)])
    query.task(1, 0)
    query.restart()
    query.commit(1, [query.task(1, 0)])
    assert query.written() == query.expected(2, 1)


def test_a_replaced_driver_cannot_decide(cluster: Cluster) -> None:
    query = Query(cluster)
    query.commit(0, [query.task(0, 0)])
    old_run, old_state = query.run, dict(exactly_once._drivers)
    query.restart()
    query.commit(1, [query.task(1, 0)])
    zombie = Job(query.name, old_run, 1)
    _, late = prepare(query.options, zombie, 0, 0, [pa.record_batch({"value": ["zombie"]})])
    assert late is not None
    exactly_once._drivers.clear()
    exactly_once._drivers.update(old_state)
    with pytest.raises((ProducerFenced, InvalidProducerEpoch)):
        commit_batch(query.options, zombie, [late])
    query.restart()
    query.commit(2, [query.task(2, 0)])
    assert query.written() == query.expected(3, 1)


def test_processes_of_one_run_commit_alternately(cluster: Cluster) -> None:
    query = Query(cluster)
    processes: list[dict[tuple[str, str], object]] = [{}, {}]
    # Spark may commit each batch in another worker process, because other queries use the workers as well.
    for batch, process in enumerate((0, 1, 0, 0, 1, 0)):
        exactly_once._drivers.clear()
        exactly_once._drivers.update(processes[process])  # type: ignore[arg-type]
        query.commit(batch, [query.task(batch, 0)])
        processes[process] = dict(exactly_once._drivers)
    assert query.written() == query.expected(6, 1)


def test_a_lost_transaction_fails_the_commit_before_anything_is_decided(cluster: Cluster) -> None:
    query = Query(cluster)
    kept, lost = query.task(0, 0), query.task(0, 1)
    client = shared_cluster(query.options.client)
    client.run(TransactionCalls(client.async_cluster).end(lost, commit=False))
    with pytest.raises(CommitLost, match=lost.id):
        query.commit(0, [kept, lost])
    query.restart()
    query.commit(0, [query.task(0, task) for task in range(2)])
    assert query.written() == query.expected(1, 2)


def test_a_failed_batch_is_aborted(cluster: Cluster) -> None:
    query = Query(cluster)
    reported, unreported = query.task(0, 0), query.task(0, 1)
    assert reported.id != unreported.id
    abort(query.options, query.job(0), [reported])
    query.commit(0, [query.task(0, 0)])
    assert query.written() == query.expected(1, 1)


def test_a_decided_batch_is_not_aborted_when_its_commit_fails(cluster: Cluster) -> None:
    query = Query(cluster)
    prepared = [query.task(0, task) for task in range(2)]
    query.decide_only(0, prepared)
    abort(query.options, query.job(0), prepared)  # as Spark does
    query.restart()
    query.commit(0, [query.task(0, 0)])
    assert query.written() == query.expected(1, 2)


def test_a_batch_write_is_atomic(cluster: Cluster) -> None:
    query = Query(cluster)
    job = Job("batch-write", uuid.uuid4().hex)
    batches = [pa.record_batch({"value": [f"0-{task}-{number}" for number in range(3)]}) for task in range(2)]
    prepared = [prepare(query.options, job, task, 0, [batch])[1] for task, batch in enumerate(batches)]
    assert query.written() == Counter()
    commit_once(query.options, job, [transaction for transaction in prepared if transaction is not None])
    assert query.written() == query.expected(1, 2)


@pytest.mark.parametrize("seed", range(3))
def test_every_row_is_written_once_under_random_failures(cluster: Cluster, seed: int) -> None:
    choose = random.Random(seed)
    query = Query(cluster)
    batch, tasks = 0, 2
    while batch < 8:
        prepared = []
        for task in range(tasks):
            if choose.random() < 0.2:
                query.task(batch, task)  # it finished, but its message was lost with the executor
                prepared.append(query.task(batch, task, attempt=1))
            else:
                prepared.append(query.task(batch, task))
        match choose.choice(("commit", "commit", "die before", "die decided", "die committed")):
            case "commit":
                query.commit(batch, prepared)
                batch += 1
            case "die before":
                query.restart()
            case "die decided":
                query.decide_only(batch, prepared)
                query.restart()
            case "die committed":
                query.commit(batch, prepared)
                query.restart()  # before Spark logged the batch as finished, so it runs again
    assert query.written() == query.expected(8, tasks)
