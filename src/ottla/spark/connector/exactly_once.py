"""Every row once, for whoever reads committed records: tasks prepare, the driver decides once a batch, then all commit.

A task writes in a transaction of its own and leaves it open; the message that it returns says which. The driver gets
one message for each task that counts, whatever was retried or ran twice. For a streaming query it writes its decision
first: which batch, and which transactions. If it dies behind that, the next driver commits what was decided, and aborts
what Spark made its tasks write anew for the same batch. What nobody decided on is aborted: by the task that failed, by
the driver, by the next driver, or in the end by the transaction's timeout.

A task's transactional id is made of the query, the run of the query, the task's number, its attempt, and whether the
batch is even or odd. So attempts do not fence each other, a new run leaves alone what the last one prepared, and the
ids of the last decided batch are not used again before the next decision.

The one weak spot is the transaction's timeout: a decided transaction that its coordinator has aborted, since nobody
came to commit it in time, is told as `CommitLost`, never passed over.
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
from ottla.spark.connector.cluster import BlockingCluster, shared
from ottla.spark.connector.decisions import Decision, Decisions
from ottla.spark.connector.sending import Sender
from ottla.spark.connector.transactions import ONGOING, Transaction, TransactionCalls
from ottla.spark.connector.write_options import WriteOptions
from ottla.spark.connector.writing import TaskWriter

_log = logging.getLogger(__name__)


class CommitLost(Exception):
    """Transactions that were to be committed are gone."""


class Job(NamedTuple):
    """What one batch of a query, or one batch write, is called by its tasks and its driver alike."""

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
    """Write a task's rows in a transaction that stays open: how many rows, and which transaction, if there were any."""
    access = shared(options.client)
    calls = TransactionCalls(access.cluster)
    transaction = access.run(calls.begin(job.id_of(task, attempt), options.client.transaction_timeout_s))
    sender = Sender(access, options.client, transaction.identity, transaction.id)
    writer = TaskWriter(access, options, sender, enlist=lambda keys: access.run(calls.enlist(transaction, keys)))
    try:
        writer.write(batches)
    except BaseException:
        if writer.count:
            _abort(access, calls, [transaction])
        raise
    return writer.count, transaction if writer.count else None


def abort(options: WriteOptions, job: Job | None, transactions: Iterable[Transaction]) -> None:
    """Undo what tasks have prepared; if it is known what they were about, also what they could not tell of."""
    access = shared(options.client)
    calls = TransactionCalls(access.cluster)
    if job is not None and _is_decided(access, options, job):
        return  # Spark aborts a batch whose commit failed, too: what was decided is the next driver's to commit
    _abort(access, calls, transactions)
    if job is not None:
        _sweep(access, calls, job.prefix)


def _is_decided(access: BlockingCluster, options: WriteOptions, job: Job) -> bool:
    if job.batch is None:
        return False
    try:
        last = Decisions(access, options.client, options.decisions_topic, job.query).last()
    except UnknownTopicOrPartition:
        return False
    return last is not None and (last.run, last.batch) == (job.run, job.batch)


def commit_once(options: WriteOptions, job: Job, transactions: Sequence[Transaction]) -> None:
    """Commit a batch write, of which there is no second try."""
    access = shared(options.client)
    calls = TransactionCalls(access.cluster)
    _check_open(access, calls, transactions)
    _commit(access, calls, transactions)
    _sweep(access, calls, job.prefix)


def commit_batch(options: WriteOptions, job: Job, transactions: Sequence[Transaction]) -> None:
    """Commit a batch of a streaming query, unless it was decided before: then finish that, and undo this."""
    assert job.batch is not None, "a streaming query numbers its batches"
    access = shared(options.client)
    calls = TransactionCalls(access.cluster)
    known = _driven.pop((job.query, job.run), None)  # unless all goes well, it is looked up again
    driver = known or _recover(access, calls, options, job)
    decision = Decision(job.run, job.batch, tuple(transactions))
    try:
        is_new = _decide(access, calls, driver, decision)
    except (ProducerFenced, InvalidProducerEpoch):
        # Spark commits in any of the processes that it keeps: another one may have committed batches of this run since.
        if known is None or not known[0].is_driven_by(job.run):
            raise
        driver = _recover(access, calls, options, job)
        is_new = _decide(access, calls, driver, decision)
    if is_new:
        _commit(access, calls, transactions)
        _driven[job.query, job.run] = driver[0], decision
        _sweep(access, calls, job.prefix)
    else:
        _abort(access, calls, transactions)
        _driven[job.query, job.run] = driver


_Driver = tuple[Decisions, Decision | None]
"""The right to decide, and what was decided last."""


def _decide(access: BlockingCluster, calls: TransactionCalls, driver: _Driver, decision: Decision) -> bool:
    """Write a decision; not if there is nothing to commit, or this batch was decided before, or a later one."""
    decisions, last = driver
    if not decision.transactions or (last is not None and last.batch >= decision.batch):
        return False
    _check_open(access, calls, decision.transactions)
    decisions.write(decision)
    return True


_driven: dict[tuple[str, str], _Driver] = {}
"""The runs that this process has taken over, with their last decision, whose transactions are committed."""


def _recover(access: BlockingCluster, calls: TransactionCalls, options: WriteOptions, job: Job) -> _Driver:
    """Take over from the last run of the query: finish what it decided, undo what it did not."""
    decisions = Decisions(access, options.client, options.decisions_topic, job.query)
    decisions.take_over(job.run)
    last = decisions.last()
    if last is not None:
        _commit(access, calls, last.transactions, may_be_forgotten=True)
    _sweep(access, calls, job.query, but=job.prefix)
    return decisions, last


def _sweep(access: BlockingCluster, calls: TransactionCalls, prefix: str, *, but: str | None = None) -> None:
    """Abort what is open still: tasks that were killed, or lost the race, and could not do it themselves.

    Otherwise readers of committed records would wait for the transaction's timeout.
    """
    for left in access.run(calls.open_ids(f"{prefix}/")):
        if but is None or not left.startswith(f"{but}/"):
            _log.warning("transaction %s was left open, and is aborted", left)
            access.run(calls.begin(left, 1.0))


def _check_open(access: BlockingCluster, calls: TransactionCalls, transactions: Sequence[Transaction]) -> None:
    """Raise CommitLost while nothing is decided yet: the batch can still be tried again."""
    for each in transactions:
        try:
            found = access.run(calls.describe(each.id))
        except TransactionalIdNotFound:
            raise CommitLost(f"transaction {each.id} is not known to its coordinator any more") from None
        if (found.producer_id, found.epoch, found.state) != (each.producer_id, each.epoch, ONGOING):
            raise CommitLost(
                f"transaction {each.id} was ended before it could be committed: it is {found.state}, "
                f"with epoch {found.epoch} instead of {each.epoch}. Its timeout is kafka.transaction.timeout.ms"
            )


def _commit(
    access: BlockingCluster,
    calls: TransactionCalls,
    transactions: Sequence[Transaction],
    *,
    may_be_forgotten: bool = False,
) -> None:
    failed = access.run(calls.end_all(transactions, commit=True))
    if may_be_forgotten:
        # Coordinators forget ids that were not used for a week, and only those whose transactions are ended.
        failed = {each: why for each, why in failed.items() if not isinstance(why, InvalidProducerIdMapping)}
    if failed:
        listed = "; ".join(f"{each.id}: {error.message}" for each, error in failed.items())
        raise CommitLost(
            f"{len(failed)} of {len(transactions)} transactions that were decided on could not be committed: {listed}"
        )


def _abort(access: BlockingCluster, calls: TransactionCalls, transactions: Iterable[Transaction]) -> None:
    try:
        failed = access.run(calls.end_all(transactions, commit=False))
    except ApiError as error:
        _log.warning("transactions were not aborted, which their timeout will do: %s", error.message)
        return
    for each, reason in failed.items():
        _log.warning("transaction %s was not aborted, which its timeout will do: %s", each.id, reason.message)
