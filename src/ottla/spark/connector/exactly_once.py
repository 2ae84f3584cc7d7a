"""Exactly-once writes by two-phase commit: tasks prepare transactions, the driver decides once per batch and commits.

A task writes in its own transaction, leaves it open, and returns its identity in a message. The driver receives one
message for each successful task, regardless of retries and speculative attempts. For a streaming query it first writes
a decision: the batch and its transactions. If the driver dies after that, the next driver commits the decided
transactions and aborts those that Spark's tasks wrote again for the same batch. Undecided transactions are aborted by
the task that failed, by the driver, by the next driver or, at the latest, by the transaction timeout.

A task's transactional id consists of the query, its run, the task's number, its attempt, and whether the batch is even
or odd. So attempts do not fence each other, a new run does not touch the prepared transactions of the previous run, and
the ids of the last decided batch are not reused before the next decision.

The transaction timeout limits the guarantee: if no driver commits a decided transaction in time, its coordinator aborts
it. This is always reported as `CommitLost`.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa

from ottla.protocol.errors import (
    ApiError,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    ProducerFenced,
    TransactionalIdNotFound,
    UnknownTopicOrPartition,
)
from ottla.spark.connector.cluster import BlockingCluster, shared_cluster
from ottla.spark.connector.decisions import Decision, Decisions
from ottla.spark.connector.sender import Sender
from ottla.spark.connector.task_writer import TaskWriter
from ottla.spark.connector.transactions import ONGOING, Transaction, TransactionCalls
from ottla.spark.connector.write_options import WriteOptions

_log = logging.getLogger(__name__)


class CommitLost(Exception):
    """Prepared transactions ended before the driver could commit them."""


class Job(NamedTuple):
    """The identity of one batch write, or of one micro-batch, that its tasks and its driver share."""

    query: str
    run: str
    batch: int | None = None

    @property
    def prefix(self) -> str:
        return f"{self.query}/{self.run}"

    def id_of(self, task: int, attempt: int) -> str:
        parity = "" if self.batch is None else f"/{self.batch % 2}"
        return f"{self.prefix}/{task}/{attempt}{parity}"


def prepare(
    options: WriteOptions, job: Job, task: int, attempt: int, batches: Iterable[pa.RecordBatch]
) -> tuple[int, Transaction | None]:
    """Write a task's rows in a transaction and leave it open; return the count and, unless it is 0, the transaction."""
    cluster = shared_cluster(options.client)
    calls = TransactionCalls(cluster.async_cluster)
    transaction = cluster.run(calls.begin(job.id_of(task, attempt), options.client.transaction_timeout_s))
    sender = Sender(cluster, options.client, transaction.identity, transaction.id)
    writer = TaskWriter(
        cluster, options, sender, enlist=lambda keys: cluster.run(calls.add_partitions(transaction, keys))
    )
    try:
        writer.write(batches)
    except BaseException:
        if writer.count:
            _abort(cluster, calls, [transaction])
        raise
    return writer.count, transaction if writer.count else None


def abort(options: WriteOptions, job: Job | None, transactions: Iterable[Transaction]) -> None:
    """Abort prepared transactions; if the job is known, also those of tasks that sent no message."""
    cluster = shared_cluster(options.client)
    calls = TransactionCalls(cluster.async_cluster)
    if job is not None and _is_decided(cluster, options, job):
        return  # Spark also aborts a batch whose commit failed; the next driver commits what was decided
    _abort(cluster, calls, transactions)
    if job is not None:
        _abort_open(cluster, calls, job.prefix)


def _is_decided(cluster: BlockingCluster, options: WriteOptions, job: Job) -> bool:
    if job.batch is None:
        return False
    try:
        last = Decisions(cluster, options.client, options.decisions_topic, job.query).last()
    except UnknownTopicOrPartition:
        return False
    return last is not None and (last.run, last.batch) == (job.run, job.batch)


def commit_once(options: WriteOptions, job: Job, transactions: Sequence[Transaction]) -> None:
    """Commit a batch write. Spark does not retry it, so no decision is stored."""
    cluster = shared_cluster(options.client)
    calls = TransactionCalls(cluster.async_cluster)
    _check_open(cluster, calls, transactions)
    _commit(cluster, calls, transactions)
    _abort_open(cluster, calls, job.prefix)


def commit_batch(options: WriteOptions, job: Job, transactions: Sequence[Transaction]) -> None:
    """Commit a micro-batch. If it was decided before, finish that decision and abort these transactions instead."""
    assert job.batch is not None, "a streaming query numbers its batches"
    cluster = shared_cluster(options.client)
    calls = TransactionCalls(cluster.async_cluster)
    cached = _drivers.pop((job.query, job.run), None)  # if anything fails, the next commit recovers from the topic
    driver = cached or _recover(cluster, calls, options, job)
    decision = Decision(job.run, job.batch, tuple(transactions))
    try:
        is_new = _decide(cluster, calls, driver, decision)
    except (ProducerFenced, InvalidProducerEpoch):
        # Spark commits in any of its worker processes: another one may have committed batches of this run since.
        if cached is None or not cached[0].is_driven_by(job.run):
            raise
        driver = _recover(cluster, calls, options, job)
        is_new = _decide(cluster, calls, driver, decision)
    if is_new:
        _commit(cluster, calls, transactions)
        _drivers[job.query, job.run] = driver[0], decision
        _abort_open(cluster, calls, job.prefix)
    else:
        _abort(cluster, calls, transactions)
        _drivers[job.query, job.run] = driver


_Driver = tuple[Decisions, Decision | None]
"""The decisions that this driver may write, and the last one."""


def _decide(cluster: BlockingCluster, calls: TransactionCalls, driver: _Driver, decision: Decision) -> bool:
    """Write a decision; return False if there is nothing to commit, or if this or a later batch was decided before."""
    decisions, last = driver
    if not decision.transactions or (last is not None and last.batch >= decision.batch):
        return False
    _check_open(cluster, calls, decision.transactions)
    decisions.write(decision)
    return True


_drivers: dict[tuple[str, str], _Driver] = {}
"""The runs that this process drives, each with its last decision, whose transactions are committed."""


def _recover(cluster: BlockingCluster, calls: TransactionCalls, options: WriteOptions, job: Job) -> _Driver:
    """Take over from the previous run of the query: commit what it decided, abort what it did not."""
    decisions = Decisions(cluster, options.client, options.decisions_topic, job.query)
    decisions.take_over(job.run)
    last = decisions.last()
    if last is not None:
        _commit(cluster, calls, last.transactions, ids_may_have_expired=True)
    _abort_open(cluster, calls, job.query, except_prefix=job.prefix)
    return decisions, last


def _abort_open(
    cluster: BlockingCluster, calls: TransactionCalls, prefix: str, *, except_prefix: str | None = None
) -> None:
    """Abort the transactions that killed or superseded tasks left open.

    Otherwise readers of committed records would wait for the transaction timeout.
    """
    for transactional_id in cluster.run(calls.open_ids(f"{prefix}/")):
        if except_prefix is None or not transactional_id.startswith(f"{except_prefix}/"):
            _log.warning("aborting transaction %s, which a task left open", transactional_id)
            cluster.run(calls.begin(transactional_id, 1.0))


def _check_open(cluster: BlockingCluster, calls: TransactionCalls, transactions: Sequence[Transaction]) -> None:
    """Raise CommitLost if a transaction is not open. Nothing is decided yet, so Spark can still retry the batch."""
    for transaction in transactions:
        try:
            state = cluster.run(calls.describe(transaction.id))
        except TransactionalIdNotFound:
            raise CommitLost(
                f"cannot commit transaction {transaction.id}: its coordinator no longer has its id. Nothing of this "
                "batch was committed; run it again"
            ) from None
        if (state.producer_id, state.epoch, state.state) != (transaction.producer_id, transaction.epoch, ONGOING):
            raise CommitLost(
                f"cannot commit transaction {transaction.id}: it has already ended (state {state.state}, epoch "
                f"{state.epoch} instead of {transaction.epoch}), probably by its timeout. Nothing of this batch was "
                "committed; run it again, with a larger kafka.transaction.timeout.ms if its tasks take that long"
            )


def _commit(
    cluster: BlockingCluster,
    calls: TransactionCalls,
    transactions: Sequence[Transaction],
    *,
    ids_may_have_expired: bool = False,
) -> None:
    failed = cluster.run(calls.end_all(transactions, commit=True))
    if ids_may_have_expired:
        # Coordinators expire ids that were unused for a week, and only ids without an open transaction.
        failed = {key: error for key, error in failed.items() if not isinstance(error, InvalidProducerIdMapping)}
    if failed:
        listed = "; ".join(f"{transaction.id}: {error.message}" for transaction, error in failed.items())
        raise CommitLost(
            f"cannot commit {len(failed)} of the batch's {len(transactions)} transactions: {listed}. A streaming query "
            "tries again when it is restarted; rows of transactions that ended by kafka.transaction.timeout.ms are lost"
        )


def _abort(cluster: BlockingCluster, calls: TransactionCalls, transactions: Iterable[Transaction]) -> None:
    try:
        failed = cluster.run(calls.end_all(transactions, commit=False))
    except ApiError as error:
        _log.warning("cannot abort transactions; their timeout will abort them: %s", error.message)
        return
    for transaction, reason in failed.items():
        _log.warning("cannot abort transaction %s; its timeout will abort it: %s", transaction.id, reason.message)
