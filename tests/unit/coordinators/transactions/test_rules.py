"""Rules that take long to apply, or that no current client uses."""

from collections.abc import Sequence
from typing import Any

import pytest

from ottla.coordinators.transactions.behaviour import EXPIRATION, TIMEOUTS, TransactionBehaviour
from ottla.coordinators.transactions.context import Context
from ottla.coordinators.transactions.ending import complete_transaction, end_transaction
from ottla.coordinators.transactions.init_producer_id import ExpectedProducer, check_init, initialize_producer
from ottla.coordinators.transactions.partitions import add_partitions
from ottla.coordinators.transactions.state import (
    MAX_EPOCH,
    NO_TIMEOUT_MS,
    TopicPartition,
    Transaction,
    TransactionsState,
    TransactionStatus,
)
from ottla.protocol.errors import (
    ApiError,
    ConcurrentTransactions,
    InvalidTransactionTimeout,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    TransactionalIdAuthorizationFailed,
    UnsupportedVersion,
)
from ottla.protocol.wire.batch import read_header
from ottla.protocol.wire.records import Record, build_batch
from ottla.storage.log.producers import Origin, Producers
from ottla.storage.state_machine.decision import Decision

DAY_MS = 86_400_000
WHERE = TopicPartition("t", 0)


class Rules:
    """A state on which decisions take effect at once."""

    def __init__(self, *transactions: Transaction, version: int = 2, **how: Any) -> None:
        self.now_ms = 1000
        self.ids = iter(range(500, 600))
        self.ended: list[Transaction] = []
        self.timers: dict[Any, int | None] = {}
        self._how = {"transaction_version": version, "take_producer_id": lambda: next(self.ids), **how}
        self.behaviour = TransactionBehaviour(lambda now_ms: self.context)
        self.state: TransactionsState = self.behaviour.empty_state()
        for transaction in transactions:
            self.do(self.context.write(self.state, transaction, None))

    @property
    def context(self) -> Context:
        return Context(now_ms=self.now_ms, marker_ticket=lambda _: self, **self._how)

    def answer(self, transaction: Transaction, /) -> None:
        self.ended.append(transaction)

    def fail(self, error: ApiError, /) -> None:
        raise error

    def do(self, decision: Decision[Any]) -> Any:
        state = self.state if decision.state is None else decision.state
        self.state = self.behaviour.replay(state, decision.records, self.now_ms)
        for ticket, answer in decision.answers:
            ticket.answer(answer)
        self.timers.update(decision.timers)
        return decision.reply

    def expire(self, key: str) -> None:
        self.do(self.behaviour.on_timer(self.state, key, self.now_ms))

    @property
    def known(self) -> Sequence[str]:
        return sorted(each.transactional_id for each in self.state)


def test_unused_transactional_ids_expire_unless_a_transaction_is_open() -> None:
    rules = Rules(
        Transaction("idle", 1, 0, 60_000, updated_ms=0),
        Transaction("used", 2, 0, 60_000, updated_ms=6 * DAY_MS),
        Transaction(
            "open", 3, 0, NO_TIMEOUT_MS, TransactionStatus.ONGOING, frozenset({WHERE}), start_ms=0, updated_ms=0
        ),
    )
    rules.now_ms = 7 * DAY_MS
    rules.expire(EXPIRATION)
    assert rules.known == ["open", "used"]
    assert rules.timers[EXPIRATION] == rules.now_ms + 3_600_000


def test_many_idle_ids_expire_in_steps() -> None:
    rules = Rules(*[Transaction(f"id{number}", number, 0, 1000, updated_ms=0) for number in range(1200)])
    rules.now_ms = 8 * DAY_MS
    rules.expire(EXPIRATION)
    assert len(rules.known) == 700
    assert rules.timers[EXPIRATION] == rules.now_ms
    rules.expire(EXPIRATION)
    rules.expire(EXPIRATION)
    assert not rules.known


def test_a_transaction_of_a_two_phase_commit_never_times_out() -> None:
    partitions = frozenset({WHERE})
    rules = Rules(
        Transaction("two-phase", 1, 0, NO_TIMEOUT_MS, TransactionStatus.ONGOING, partitions, start_ms=0, updated_ms=0),
        Transaction("other", 2, 0, 60_000, TransactionStatus.ONGOING, partitions, start_ms=0, updated_ms=0),
    )
    rules.now_ms = 60_000
    rules.expire(TIMEOUTS)
    assert not rules.ended
    rules.now_ms = 90 * DAY_MS
    rules.expire(TIMEOUTS)
    assert [each.transactional_id for each in rules.ended] == ["other"]
    assert rules.timers[TIMEOUTS] == rules.now_ms + 10_000


def test_invalid_producer_requests_are_rejected() -> None:
    plain, two_phase = Rules().context, Rules(is_two_phase_enabled=True).context
    assert check_init(plain, 900_000, two_phase=False, keep_prepared=False) == 900_000
    for timeout_ms in (0, -1, 900_001):
        with pytest.raises(InvalidTransactionTimeout):
            check_init(plain, timeout_ms, two_phase=False, keep_prepared=False)
    with pytest.raises(TransactionalIdAuthorizationFailed):
        check_init(plain, 1000, two_phase=True, keep_prepared=False)
    assert check_init(two_phase, 0, two_phase=True, keep_prepared=False) == NO_TIMEOUT_MS
    with pytest.raises(UnsupportedVersion):
        check_init(two_phase, 1000, two_phase=True, keep_prepared=True)


def test_the_last_epoch_leads_to_another_producer_id() -> None:
    last = MAX_EPOCH - 1
    rules = Rules(Transaction("id", 7, last, 60_000))
    rules.do(add_partitions(rules.state, rules.context, "id", 7, last, [WHERE], client_version=2, reply=None))
    given = rules.do(end_transaction(rules.state, rules.context, "id", 7, last, commit=True, client_version=2))
    assert (given.producer_id, given.producer_epoch) == (500, 0)
    (prepared,) = rules.ended
    assert (prepared.producer_id, prepared.epoch) == (7, MAX_EPOCH)
    with pytest.raises(ConcurrentTransactions):
        end_transaction(rules.state, rules.context, "id", 7, last, commit=True, client_version=2)
    rules.do(complete_transaction(rules.state, rules.context, prepared))
    again = rules.do(end_transaction(rules.state, rules.context, "id", 7, last, commit=True, client_version=2))
    assert (again.producer_id, again.producer_epoch) == (500, 0)
    with pytest.raises(InvalidTxnState):
        end_transaction(rules.state, rules.context, "id", 7, last, commit=False, client_version=2)


def test_a_producer_gets_another_id_when_its_epochs_are_exhausted() -> None:
    last = MAX_EPOCH - 1
    rules = Rules(Transaction("id", 7, last, 60_000))
    given = rules.do(initialize_producer(rules.state, rules.context, "id", 60_000, ExpectedProducer(7, last)))
    assert (given.producer_id, given.producer_epoch) == (500, 0)
    again = rules.do(initialize_producer(rules.state, rules.context, "id", 60_000, ExpectedProducer(7, last)))
    assert (again.producer_id, again.producer_epoch) == (500, 0)
    with pytest.raises(ProducerFenced):
        initialize_producer(rules.state, rules.context, "id", 60_000, ExpectedProducer(7, 3))


def test_a_late_response_of_the_coordinator_opens_no_transaction() -> None:
    producers = Producers()
    guard = producers.start_verification(7, 0, 0, names_epochs=False, now_ms=0)
    changes = producers.begin(Origin.COORDINATOR)
    changes.add_marker(header(epoch=0), 0, commit=False, coordinator_epoch=1, timestamp=0, transaction_version=0)
    changes.commit()
    with pytest.raises(InvalidTxnState):
        producers.check_verified(header(epoch=0), guard)
    fresh = producers.start_verification(7, 0, 0, names_epochs=False, now_ms=0)
    producers.check_verified(header(epoch=0), fresh)


def test_only_the_lowest_waiting_sequence_may_be_first() -> None:
    producers = Producers()
    first = producers.start_verification(7, 0, 3, names_epochs=False, now_ms=0)
    assert producers.start_verification(7, 0, 5, names_epochs=False, now_ms=0) is first
    with pytest.raises(OutOfOrderSequenceNumber):
        producers.check_verified(header(sequence=5), first)
    producers.check_verified(header(sequence=3), first)
    producers.expire(100, 50)
    with pytest.raises(InvalidTxnState):
        producers.check_verified(header(sequence=3), first)


def header(*, epoch: int = 0, sequence: int = 0) -> Any:
    data = build_batch(
        [Record(0, 0, None, b"v")], producer_id=7, producer_epoch=epoch, base_sequence=sequence, transactional=True
    )
    return read_header(data, 0)
