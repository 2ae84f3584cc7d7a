"""The entry point for transactions on a broker: its coordinators, and the requests to others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.coordinators.groups.state import GroupsState
from ottla.coordinators.runtime.broker_links import BrokerLinks
from ottla.coordinators.runtime.producer_ids import ProducerIds
from ottla.coordinators.runtime.shards import Shards
from ottla.coordinators.runtime.transactions.checks import TransactionChecks
from ottla.coordinators.runtime.transactions.marker_sending import MarkerSender
from ottla.coordinators.runtime.transactions.marker_writing import MarkerWriter
from ottla.coordinators.transactions.behaviour import TransactionBehaviour
from ottla.coordinators.transactions.context import Context
from ottla.coordinators.transactions.state import TransactionsState
from ottla.protocol.errors import CoordinatorLoading
from ottla.protocol.metadata_versions import TRANSACTION_VERSION
from ottla.replication.partitions import Partitions
from ottla.replication.runtime import Runtime
from ottla.security.settings import SecurityProvider, plaintext

Settings = Callable[[str], Any]
"""Returns the current value of a broker setting, parsed into its type, by Kafka's name."""


class Transactions:
    """The transaction coordinators of this broker, and its part in the transactions of others."""

    def __init__(
        self,
        partitions: Partitions,
        groups: Shards[GroupsState],
        producer_ids: ProducerIds,
        settings: Settings,
        runtime: Runtime,
        *,
        listener: str,
        timeout_ms: int,
        security: SecurityProvider = plaintext,
    ) -> None:
        self._partitions = partitions
        self._settings = settings
        self._now_ms = runtime.now_ms
        self._spawn = runtime.spawn
        self.producer_ids = producer_ids
        node_id = partitions.broker_id
        self._links = BrokerLinks(
            f"broker-{node_id}-transactions",
            lambda: partitions.image,
            listener,
            timeout_s=timeout_ms / 1000,
            security=security,
        )
        self.writer = MarkerWriter(partitions, groups, runtime, timeout_ms=timeout_ms)
        self.sender = MarkerSender(
            node_id,
            lambda: partitions.image,
            self.writer,
            self._links,
            runtime,
            context=self.context,
        )
        self.shards: Shards[TransactionsState] = Shards(
            TransactionBehaviour(self._context_at),
            partitions,
            runtime,
            write_timeout_ms=timeout_ms,
        )
        self.sender.shards = self.shards
        self.checks = TransactionChecks(
            node_id,
            lambda: partitions.image,
            self.shards,
            self._links,
            runtime,
            context=self.context,
        )

    @property
    def is_verifying(self) -> bool:
        """Whether partitions of producers that add them themselves are verified."""
        return bool(self._settings("transaction.partition.verification.enable"))

    @property
    def retry_ms(self) -> tuple[int, int]:
        """The retry interval while the previous transaction is being ended, and the total time for retries."""
        settings = self._settings
        longest = min(settings("add.partitions.to.txn.retry.backoff.max.ms"), settings("request.timeout.ms"))
        return settings("add.partitions.to.txn.retry.backoff.ms"), longest

    def context(self) -> Context:
        """Return the inputs of a decision made now."""
        return self._context_at(self._now_ms())

    def close(self) -> None:
        """Close the connections to other brokers."""
        self._links.close()

    def _context_at(self, now_ms: int) -> Context:
        settings = self._settings
        return Context(
            now_ms=now_ms,
            transaction_version=self._partitions.image.features.level(TRANSACTION_VERSION),
            take_producer_id=self._take_producer_id,
            marker_ticket=self.sender.ticket,
            max_timeout_ms=settings("transaction.max.timeout.ms"),
            is_two_phase_enabled=settings("transaction.two.phase.commit.enable"),
            expiration_ms=settings("transactional.id.expiration.ms"),
            timeout_check_ms=settings("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            expiration_check_ms=settings("transaction.remove.expired.transaction.cleanup.interval.ms"),
        )

    def _take_producer_id(self) -> int:
        producer_id = self.producer_ids.take()
        if producer_id is None:
            self._spawn(self.producer_ids.refill())
            raise CoordinatorLoading("no producer id is available; the controller has been asked for a new block")
        return producer_id
