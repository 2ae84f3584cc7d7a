"""The active controller: turns requests into events and decisions while this node leads the quorum.

It activates when all records up to its own election are committed and applied, and then writes the bootstrap records
if the log is empty. When it loses leadership, pending requests fail with NOT_CONTROLLER.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from random import Random
from time import perf_counter_ns
from typing import Any, Final, NamedTuple, Protocol

from ottla.metadata.consensus.effects import RoleChanged
from ottla.metadata.controller.activation import activate, write_no_op
from ottla.metadata.controller.broker_heartbeat import fence_stale_broker
from ottla.metadata.controller.decision import Decision
from ottla.metadata.controller.delegation_tokens import remove_expired_tokens
from ottla.metadata.controller.heartbeats import Heartbeats
from ottla.metadata.controller.leader_elections import balance_partition_leaders, elect_unclean_leaders
from ottla.metadata.controller.state_tracker import StateTracker
from ottla.metadata.controller.view import ControllerOptions, ControllerView
from ottla.metadata.image.changes import Changes
from ottla.metadata.image.delta import Delta
from ottla.metadata.image.encoding import metadata_batch
from ottla.metadata.image.image import Image
from ottla.metadata.image.loader import Update
from ottla.metadata.runtime.cluster_events import log_cluster_events
from ottla.metadata.runtime.decisions import (
    REQUESTS_WITH_DEADLINE,
    Decide,
    DecisionContext,
    Requester,
    api_name,
    decision_on,
)
from ottla.metadata.runtime.publisher import ExpectedDecision, MetadataPublisher
from ottla.metadata.runtime.quorum_driver import QuorumDriver
from ottla.protocol.errors import ApiError, NotController, NotLeader
from ottla.protocol.messages.records.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)
from ottla.protocol.metadata_versions import METADATA_VERSION, version_to_write
from ottla.security.principal_mapping import ANONYMOUS
from ottla.storage.state_machine.machine import Machine

logger = logging.getLogger(__name__)

_MAX_BATCH_RECORDS: Final = 5000
_EXPIRY_CHECK_S: Final = 0.1
_MORE_TO_DO_S: Final = 0.01
THIS_NODE: Final = Requester(ANONYMOUS, is_from_broker=True)
"""The requester of the node's own requests."""


class Loop(Protocol):
    """The part of the event loop that the controller needs."""

    def create_future(self) -> asyncio.Future[Any]: ...

    def call_later(self, delay: float, callback: Callable[..., object], /, *args: Any) -> Any: ...


class Verdicts(Protocol):
    """The verdicts of the policies on one request (`node/policies.py`)."""

    def put_into(self, options: ControllerOptions) -> ControllerOptions: ...


class PeriodicTask(NamedTuple):
    """Periodic work of the active controller."""

    name: str
    interval_s: float
    decide: Decide


class ActiveController:
    """The controller of this node. `submit` fails with NotController while it is not active."""

    def __init__(
        self,
        quorum: QuorumDriver,
        metadata: MetadataPublisher,
        options: ControllerOptions,
        bootstrap: Sequence[object],
        *,
        session_timeout_ms: int,
        loop: Loop,
        random: Random,
        now_ms: Callable[[], int],
    ) -> None:
        self._quorum = quorum
        self._metadata = metadata
        self._options = options
        self._bootstrap = bootstrap
        self._loop = loop
        self._now_ms = now_ms
        self._epoch = -1
        self._active_from: int | None = None
        self._last_append_ms = 0
        self._appended: Image | None = None
        """The image after the records that are being appended."""
        self._timers: dict[str, Any] = {}
        self.on_active: Callable[[], None] | None = None
        """Called after this controller became active."""
        self.heartbeats = Heartbeats(session_timeout_ms)
        self.states = StateTracker()
        self._unfollowed: list[Changes] = []
        """Committed changes that `states` has not followed yet."""
        metadata.subscribers.append(self._on_update)
        self._context = DecisionContext(quorum, self.heartbeats, self.states, random, now_ms, THIS_NODE)
        self.machine: Machine[Image] = Machine(
            append=self._append, apply=self._apply, now_ms=now_ms, clock_ns=perf_counter_ns
        )

    @property
    def is_active(self) -> bool:
        return self.machine.is_active

    def on_role(self, change: RoleChanged) -> None:
        """Activate or deactivate with the role of this node in the quorum."""
        self._metadata.forget_expected()
        if change.role == "leader":
            self._epoch = change.epoch
            self._active_from = self._quorum.log.end_offset
            self._maybe_activate()
        else:
            self._active_from = None
            if self.machine.is_active:
                logger.info("this node is no longer the active controller; its epoch was %d", self._epoch)
                self.states.is_active = False
                self._cancel_timers()
                self.machine.deactivate(
                    NotController("this node is no longer the active controller; retry with the new one")
                )

    def on_committed(self, high_watermark: int) -> None:
        """Act on a higher high watermark, after the committed records are applied."""
        self.machine.committed(high_watermark - 1)
        self._maybe_activate()
        # Later, so that responses do not wait for it.
        self._loop.call_later(0, self._follow_committed)

    def _on_update(self, update: Update) -> None:
        self._unfollowed.append(update.changes)

    def _follow_committed(self) -> None:
        _build_placement(self._metadata.image)
        unfollowed, self._unfollowed = self._unfollowed, []
        for changes in unfollowed:
            self.states.follow(changes)
            if self.machine.is_active:
                log_cluster_events(changes)

    def rehearse(self, request: Any, requester: Requester, verdicts: Verdicts) -> None:
        """Decide on a request without appending it, so that `verdicts` collects what the policies must check."""
        if not self.machine.is_active:
            raise NotController("this node is not the active controller; ask the leader of the metadata quorum")
        context = self._context._replace(requester=requester._replace(charge=None))
        decide = self._on_image(decision_on(request, context), verdicts)
        with contextlib.suppress(ApiError):  # the error is returned by the real decision
            decide(self.machine.state)

    def submit(
        self, request: Any, requester: Requester = THIS_NODE, verdicts: Verdicts | None = None
    ) -> asyncio.Future[Any]:
        """Decide on a request. The future gets the response when its records are committed."""
        decide = decision_on(request, self._context._replace(requester=requester))
        future = self._loop.create_future()

        def reply(result: Any) -> None:
            if future.done():
                return
            if isinstance(result, ApiError):
                future.set_exception(result)
            else:
                future.set_result(result)

        if not self.machine.is_active:
            reply(NotController("this node is not the active controller; ask the leader of the metadata quorum"))
            return future
        deadline_ms = self._now_ms() + request.timeout_ms if type(request) in REQUESTS_WITH_DEADLINE else None
        self.machine.submit(api_name(request), self._on_image(decide, verdicts), reply, deadline_ms=deadline_ms)
        return future

    def stop(self) -> None:
        """Stop deciding."""
        self._cancel_timers()
        if self.machine.is_active:
            self.machine.deactivate(NotController("the controller is shutting down; retry with the new one"))

    def _on_image(self, decide: Decide, verdicts: Verdicts | None = None) -> Callable[[Image], Decision[Any]]:
        options = self._options if verdicts is None else verdicts.put_into(self._options)
        return lambda image: decide(ControllerView(image, options))

    def _maybe_activate(self) -> None:
        if self._active_from is None or self.machine.is_active:
            return
        if self._metadata.applied_offset < self._active_from:
            return
        self._active_from = None
        image = self._metadata.image
        logger.info("this node is the active controller of epoch %d", self._epoch)
        self.heartbeats.activate(image, self._now_ms())
        self.states.is_active = True
        self.machine.activate(image, self._quorum.log.end_offset - 1)
        self.machine.committed(self._quorum.log.end_offset - 1)
        in_transaction = self._metadata.in_transaction
        self.machine.submit(
            "Activation",
            self._on_image(lambda view: activate(view, self._bootstrap, in_transaction=in_transaction)),
            _log_failure,
            first=True,
        )
        for task in self._periodic_tasks():
            self._schedule(task, task.interval_s)
        if self.on_active is not None:
            self.on_active()

    def _periodic_tasks(self) -> Iterator[PeriodicTask]:
        """Return the periodic tasks. An interval of 0 disables a task."""
        setting = self._options.number
        yield PeriodicTask("FenceExpired", _EXPIRY_CHECK_S, self._fence_stale_broker)
        yield PeriodicTask("NoOp", setting("metadata.max.idle.interval.ms") / 1000, self._write_no_op_if_idle)
        unclean_s = setting("unclean.leader.election.interval.ms") / 1000
        yield PeriodicTask("ElectUnclean", unclean_s, elect_unclean_leaders)
        if self._options.setting("auto.leader.rebalance.enable"):
            yield PeriodicTask(
                "BalanceLeaders", setting("leader.imbalance.check.interval.seconds"), balance_partition_leaders
            )
        tokens_s = setting("delegation.token.expiry.check.interval.ms") / 1000
        yield PeriodicTask(
            "RemoveExpiredTokens", tokens_s, lambda view: remove_expired_tokens(view, now_ms=self._now_ms())
        )

    def _fence_stale_broker(self, view: ControllerView) -> Decision[bool]:
        """Fence one broker whose session expired."""
        return fence_stale_broker(view, self.heartbeats, now_ms=self._now_ms())

    def fence_stale_brokers_now(self) -> None:
        """Fence expired brokers at once, without waiting for the periodic check."""
        if self.machine.is_active:
            self.machine.submit("FenceExpired", self._on_image(self._fence_stale_broker), _log_failure)

    def _write_no_op_if_idle(self, view: ControllerView) -> Decision[None]:
        """Write a NoOpRecord if nothing was appended for metadata.max.idle.interval.ms."""
        idle_ms = self._now_ms() - self._last_append_ms
        is_quiet = idle_ms >= self._options.number("metadata.max.idle.interval.ms")
        return write_no_op() if is_quiet else Decision((), None)

    def _schedule(self, task: PeriodicTask, delay_s: float) -> None:
        if task.interval_s > 0:
            self._timers[task.name] = self._loop.call_later(delay_s, self._run_task, task)

    def _run_task(self, task: PeriodicTask) -> None:
        if not self.machine.is_active:
            return

        def done(result: Any) -> None:
            _log_failure(result)
            if self.machine.is_active:
                self._schedule(task, min(_MORE_TO_DO_S, task.interval_s) if result is True else task.interval_s)

        self.machine.submit(task.name, self._on_image(task.decide), done)

    def _cancel_timers(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _append(self, records: Sequence[Any], atomic: bool) -> int:
        _build_placement(self.machine.state)
        # Applied before it is written: a record that does not apply would stop every node that reads it.
        delta = _apply_records(self.machine.state, records)
        level = _metadata_version(self.machine.state, records)
        start, now_ms = self._quorum.log.end_offset, self._now_ms()
        last = start + len(records) - 1
        image = delta.finish(offset=last, epoch=self._epoch, timestamp=now_ms)
        step = len(records) if atomic else _MAX_BATCH_RECORDS
        batches = [
            metadata_batch(
                [(record, version_to_write(record, level)) for record in records[done : done + step]],
                base_offset=start + done,
                epoch=self._epoch,
                timestamp=now_ms,
            )
            for done in range(0, len(records), step)
        ]
        self._metadata.expect_decision(ExpectedDecision(delta, image, sum(map(len, batches))))
        try:
            offsets = [self._quorum.propose(self._epoch, batch) for batch in batches]
        except NotLeader:
            self._metadata.forget_expected()
            raise NotController("this node is no longer the active controller; retry with the new one") from None
        assert offsets[-1] == last, "the records of a decision are contiguous"
        self._last_append_ms, self._appended = now_ms, image
        return last

    def _apply(self, image: Image, records: Sequence[Any], last_offset: int) -> Image:
        appended, self._appended = self._appended, None
        assert appended is not None, "a decision is appended before it is applied"
        return appended


def _build_placement(image: Image) -> None:
    """Build the placement of an image in advance, so that the images after it only update it.

    A full build takes 0.2 s for 100,000 partitions, too long when a broker fails or this controller takes over.
    """
    image.placement  # noqa: B018 - built on first use, and kept


_TRANSACTION_MARKS = (BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord)


def _apply_records(image: Image, records: Sequence[Any]) -> Delta:
    delta = Delta(image)
    for record in records:
        # A decision ends each transaction that it starts, so the image can skip the markers.
        if not isinstance(record, _TRANSACTION_MARKS):
            delta.apply(record)
    return delta


def _metadata_version(image: Image, records: Sequence[Any]) -> int:
    """Return the metadata.version to write with: the image's, or in an empty log that of the bootstrap records."""
    if image.features.metadata_version:
        return image.features.metadata_version
    for record in records:
        if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION:
            return record.feature_level
    return 0


def _log_failure(result: Any) -> None:
    if isinstance(result, ApiError) and not isinstance(result, NotController):
        logger.error("a periodic task of the controller failed: %s", result)
