"""What leaders ask the transaction coordinator before they append the first batch of a transaction (KIP-890).

Of a producer that adds partitions itself they ask whether this one was added; for one of transaction.version 2 they add
it. The coordinator may be here or on another broker: what is asked and answered is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from enum import Enum
from typing import Any, NamedTuple

from ottla.coordinators.runtime.broker_links import Batched, BrokerLinks
from ottla.coordinators.runtime.shards import Shards, partition_for
from ottla.coordinators.transactions.context import Context
from ottla.coordinators.transactions.partitions import add_partitions, verify_partitions
from ottla.coordinators.transactions.records import TOPIC
from ottla.coordinators.transactions.state import EPOCH_BUMPING, TopicPartition, TransactionsState
from ottla.metadata.image.image import Image
from ottla.protocol.errors import (
    ApiError,
    ClusterAuthorizationFailed,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidTxnState,
    NetworkFailed,
    ProducerFenced,
    RequestTimedOut,
    TransactionAbortable,
    UnsupportedVersion,
    by_code,
)
from ottla.protocol.messages.rpc.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.replication.runtime import Runtime
from ottla.storage.state_machine.decision import Decision

Refused = dict[TopicPartition, ApiError]
Done = Callable[[Refused], None]
"""Takes the partitions that may not be written to, with the reason; now or later."""


class Ability(Enum):
    """What a producer can do, as the version of its request tells."""

    OLD = "knows no TRANSACTION_ABORTABLE"
    ABORTS = "knows TRANSACTION_ABORTABLE"
    ADDS = "adds partitions by writing to them"


class _Question(NamedTuple):
    transactional_id: str
    producer_id: int
    epoch: int
    partitions: Collection[TopicPartition]
    ability: Ability
    done: Done

    @property
    def is_check(self) -> bool:
        """Whether the partitions must be part of the transaction already."""
        return self.ability is not Ability.ADDS

    def refuse(self, error: ApiError) -> None:
        """The same for all partitions."""
        self.answer(dict.fromkeys(self.partitions, error))

    def answer(self, refused: Refused) -> None:
        self.done({where: self._told(error) for where, error in refused.items()})

    def _told(self, error: ApiError) -> ApiError:
        """An error of the coordinator's in the words that a producer expects in answer to what it sent."""
        if isinstance(error, ProducerFenced):
            return InvalidProducerEpoch(error.message)
        if isinstance(error, TransactionAbortable) and self.ability is Ability.OLD:
            return InvalidTxnState(error.message)
        return error


class TransactionChecks:
    """Asks the coordinators of transactions, here and elsewhere."""

    def __init__(
        self,
        node_id: int,
        image: Callable[[], Image],
        shards: Shards[TransactionsState],
        links: BrokerLinks,
        runtime: Runtime,
        *,
        context: Callable[[], Context],
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._shards = shards
        self._completions = runtime.completions
        self._context = context
        self._remote: Batched[_Question] = Batched(links, runtime.spawn, request=_request_of, answered=self._answered)

    def ask(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Collection[TopicPartition],
        ability: Ability,
        done: Done,
    ) -> None:
        """Let partitions be checked or added; `done` is called once, at once if the coordinator is here and quick."""
        question = _Question(transactional_id, producer_id, epoch, partitions, ability, done)
        topic = self._image().topic(TOPIC)
        coordinator = (
            None if topic is None else topic.partitions[partition_for(transactional_id, len(topic.partitions))]
        )
        if coordinator is None or coordinator.leader < 0:
            question.refuse(CoordinatorNotAvailable(f"{transactional_id} has no coordinator"))
        elif coordinator.leader == self._node_id:
            self._ask_here(question)
        else:
            self._remote.post(coordinator.leader, question)

    def _ask_here(self, question: _Question) -> None:
        def decide(state: TransactionsState) -> Decision[Refused]:
            id_, producer_id, epoch, partitions, *_ = question
            if question.is_check:
                found = verify_partitions(state, id_, producer_id, epoch, partitions)
                return Decision((), {where: error for where, error in found.items() if error is not None})
            nothing: Refused = {}
            return add_partitions(
                state,
                self._context(),
                id_,
                producer_id,
                epoch,
                partitions,
                client_version=EPOCH_BUMPING,
                reply=nothing,
            )

        try:
            shard = self._shards.of(question.transactional_id)
            shard.submit("VerifyTransaction", decide, _Ticket(question))
        except ApiError as error:
            question.refuse(error)

    def _answered(self, questions: Sequence[_Question], answer: Any) -> None:
        if isinstance(answer, UnsupportedVersion):
            for question in questions:
                question.answer({})  # an old broker that cannot be asked: as before there were questions
        elif isinstance(answer, ApiError):
            network = isinstance(answer, NetworkFailed | RequestTimedOut)
            for question in questions:
                question.refuse(NetworkFailed(answer.message) if network else answer)
        else:
            _distribute(questions, answer)
        self._completions.run()


class _Ticket:
    """A question to a coordinator on this broker."""

    __slots__ = ("_question",)

    def __init__(self, question: _Question) -> None:
        self._question = question

    def answer(self, response: Refused, /) -> None:
        self._question.answer(response)

    def fail(self, error: ApiError, /) -> None:
        self._question.refuse(error)


def _request_of(
    questions: Sequence[_Question],
) -> tuple[AddPartitionsToTxnRequest, list[_Question], list[_Question]]:
    """One request with all that waits, but for a second question about a transactional id."""
    taken: dict[str, _Question] = {}
    left = []
    for question in questions:
        if question.transactional_id in taken:
            left.append(question)
        else:
            taken[question.transactional_id] = question
    transactions = [
        AddPartitionsToTxnTransaction(
            transactional_id=question.transactional_id,
            producer_id=question.producer_id,
            producer_epoch=question.epoch,
            verify_only=question.is_check,
            topics=_topics(question.partitions),
        )
        for question in taken.values()
    ]
    return AddPartitionsToTxnRequest(transactions=transactions), list(taken.values()), left


def _topics(partitions: Collection[TopicPartition]) -> list[AddPartitionsToTxnTopic]:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return [AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in topics.items()]


def _distribute(questions: Sequence[_Question], answer: AddPartitionsToTxnResponse) -> None:
    """Give each question its part of an answer."""
    if answer.error_code:
        kind = by_code(answer.error_code)
        # That this broker has no right to ask is none of the producer's business: it is not verified, that is all.
        error = InvalidTxnState() if kind is ClusterAuthorizationFailed else kind()
        for question in questions:
            question.refuse(error)
        return
    by_id = {result.transactional_id: result for result in answer.results_by_transaction}
    for question in questions:
        result = by_id.get(question.transactional_id)
        if result is None:
            question.refuse(NetworkFailed("the coordinator's answer left a transaction out"))
            continue
        question.answer(
            {
                TopicPartition(topic.name, each.partition_index): by_code(each.partition_error_code)()
                for topic in result.topic_results
                for each in topic.results_by_partition
                if each.partition_error_code
            }
        )
