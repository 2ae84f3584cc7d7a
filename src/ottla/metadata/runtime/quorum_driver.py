"""The driver of consensus: files, messages and timers of a quorum member.

It carries out the effects of each step in order, as the docstring of `metadata/consensus` requires. Log flushes run in
the background; one flush covers all writes before it. Replies and changes are delivered after the step, so that their
receivers can start the next one.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Protocol

from ottla.metadata.consensus.config import ConsensusConfig, Randomness
from ottla.metadata.consensus.consensus import Consensus
from ottla.metadata.consensus.control_history import BOOTSTRAP_OFFSET, ControlHistory
from ottla.metadata.consensus.effects import (
    Append,
    Change,
    Effects,
    HighWatermark,
    Reply,
    RoleChanged,
    Send,
    Stopped,
    Truncate,
)
from ottla.metadata.consensus.log_view import BOOTSTRAP_SNAPSHOT, OffsetAndEpoch
from ottla.metadata.consensus.voters import Node, VoterSet
from ottla.metadata.image.encoding import ControlEntry, entries
from ottla.metadata.runtime.metadata_log import MetadataLog
from ottla.metadata.runtime.quorum_state_file import read_quorum_state, write_quorum_state
from ottla.protocol.errors import ApiError, NetworkFailed, UnsupportedVersion
from ottla.protocol.wire.batch import read_batches
from ottla.protocol.wire.varint import Buffer
from ottla.storage.disk import Disk

logger = logging.getLogger(__name__)

_READ_BYTES = 4 * 1024 * 1024


class Timers(Protocol):
    """The part of the event loop that the driver needs."""

    def call_later(self, delay: float, callback: Callable[[], None], /) -> Any: ...


class Peers(Protocol):
    """Sends requests to other nodes."""

    def send(
        self,
        node: Node,
        message: Any,
        timeout_ms: int,
        answered: Callable[[Any], None],
        failed: Callable[[ApiError], None],
    ) -> None:
        """Send a message. Later, call either `answered`, or `failed` with the reason."""
        ...


class Ticket(Protocol):
    """A request of another node that waits for its response."""

    def answer(self, response: Any) -> None: ...


class QuorumDriver:
    """Runs one quorum member."""

    def __init__(
        self,
        config: ConsensusConfig,
        log: MetadataLog,
        static_voters: VoterSet | None,
        *,
        disk: Disk,
        timers: Timers,
        peers: Peers,
        random: Randomness,
        now_ms: Callable[[], int],
        on_role: Callable[[RoleChanged], None],
        on_committed: Callable[[int], None],
    ) -> None:
        self.log = log
        self.listener = config.listener
        """The name of the listener of the quorum."""
        self._disk = disk
        self._timers = timers
        self._peers = peers
        self._now_ms = now_ms
        self._on_role = on_role
        self._on_committed = on_committed
        self._notifications: deque[Change | Reply] = deque()
        self._is_notifying = False
        self._timer: Any = None
        self._timer_at: int | None = None
        self.is_stopped = False
        self._logged_leader = (-1, -1)
        """The epoch and leader of the last log line."""
        history = _history(log, static_voters)
        stored = read_quorum_state(disk, log.directory)
        self.consensus = Consensus(config, log, stored, history, random)

    def start(self) -> None:
        """Start taking part in the quorum."""
        self._perform(self.consensus.start(self._now_ms()))

    def request(self, ticket: Hashable, message: Any, version: int, listener: str) -> None:
        """Handle a request of another node. The ticket gets the response."""
        self._perform(self.consensus.handle_request(ticket, message, version, listener, self._now_ms()))

    def propose(self, epoch: int, batch: bytearray) -> int:
        """Append batches as the leader of an epoch, and return the last offset. Raise NotLeader if not leading it."""
        offset, effects = self.consensus.propose(epoch, batch, self._now_ms())
        self._perform(effects)
        return offset

    def upgrade_kraft_version(self, epoch: int, version: int) -> None:
        """Raise the kraft.version as the leader of an epoch. Raise an ApiError if not all voters support it."""
        self._perform(self.consensus.upgrade_kraft_version(epoch, version, self._now_ms()))

    def resign(self, epoch: int) -> None:
        """Give up the leadership of an epoch."""
        self._perform(self.consensus.resign(epoch, self._now_ms()))

    def shutdown(self, timeout_ms: int) -> None:
        """Hand over leadership and stop. `is_stopped` is True afterwards."""
        self._perform(self.consensus.shutdown(timeout_ms, self._now_ms()))

    def snapshot_taken(self, snapshot: OffsetAndEpoch) -> None:
        """Register a snapshot that this node wrote, and drop the log before it."""
        self.log.add_snapshot(snapshot)
        self.consensus.report_snapshot_taken(snapshot.offset)
        self.log.forget_before(snapshot, self._now_ms())

    def _perform(self, effects: Effects) -> None:
        while True:
            if effects.persist is not None:
                write_quorum_state(self._disk, self.log.directory, effects.persist.state, effects.persist.version)
            installed = self._write(effects)
            if effects.flush:
                self._flush()
            for message in effects.messages:
                if isinstance(message, Send):
                    self._send(message)
                else:
                    self._notifications.append(message)
            self._notifications.extend(effects.changes)
            now_ms = self._now_ms()
            if installed is not None:
                control = control_records(self.log.snapshot_content(installed))
                effects = self.consensus.report_snapshot_installed(installed, control, now_ms)
            elif effects.writes:
                effects = self.consensus.report_appended(now_ms)
            else:
                break
        self._schedule()
        self._notify()

    def _write(self, effects: Effects) -> OffsetAndEpoch | None:
        """Carry out the writes, and return the snapshot that they installed, if any."""
        now_ms, log = self._now_ms(), self.log
        for write in effects.writes:
            if isinstance(write, Append):
                log.append(write.data, now_ms)
            elif isinstance(write, Truncate):
                log.truncate(write.end_offset, now_ms)
            else:
                log.receive_snapshot(write.snapshot, write.position, write.data)
                if write.last:
                    log.install_snapshot(write.snapshot, now_ms)
                    return write.snapshot
        return None

    def _flush(self) -> None:
        end, epoch = self.log.end_offset, self.log.last_epoch
        self.log.log.flusher.when_durable(end, partial(self._flushed, end, epoch))

    def _flushed(self, end: int, epoch: int) -> None:
        self._perform(self.consensus.report_flushed(end, epoch, self._now_ms()))

    def _send(self, send: Send) -> None:
        def answered(response: Any) -> None:
            self._perform(self.consensus.handle_response(send.id, response, self._now_ms()))

        def failed(why: ApiError) -> None:
            self._perform(
                self.consensus.handle_failure(
                    send.id,
                    self._now_ms(),
                    unsupported_version=isinstance(why, UnsupportedVersion),
                    connection_lost=isinstance(why, NetworkFailed),
                )
            )

        self._peers.send(send.to, send.message, send.timeout_ms, answered, failed)

    def _schedule(self) -> None:
        deadline = self.consensus.next_deadline()
        if deadline == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = deadline
        if deadline is not None and not self.is_stopped:
            delay = max(deadline - self._now_ms(), 0) / 1000
            self._timer = self._timers.call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = self._timer_at = None
        if not self.is_stopped:
            self._perform(self.consensus.tick(self._now_ms()))

    def _notify(self) -> None:
        """Deliver replies and changes one at a time. Each may add more, which this loop delivers, too."""
        if self._is_notifying:
            return
        self._is_notifying = True
        try:
            while self._notifications:
                notification = self._notifications.popleft()
                if isinstance(notification, Reply):
                    ticket: Any = notification.ticket
                    ticket.answer(notification.message)
                elif isinstance(notification, HighWatermark):
                    self._on_committed(notification.offset)
                elif isinstance(notification, RoleChanged):
                    self._log_leader(notification)
                    self._on_role(notification)
                else:
                    self._stopped(notification)
        finally:
            self._is_notifying = False

    def _log_leader(self, change: RoleChanged) -> None:
        """Log each leader of the quorum once, and each loss of a leader."""
        previous, self._logged_leader = self._logged_leader, (change.epoch, change.leader_id)
        if change.role == "resigned":
            self._logged_leader = (change.epoch, -1)
            if previous[1] >= 0:
                logger.info("this node resigned as the leader of the metadata quorum in epoch %d", change.epoch)
        elif self._logged_leader == previous:
            return
        elif change.leader_id >= 0:
            logger.info("node %d leads the metadata quorum in epoch %d", change.leader_id, change.epoch)
        elif previous[1] >= 0:
            logger.info("the metadata quorum has no leader in epoch %d; this node is %s", change.epoch, change.role)

    def _stopped(self, notification: Stopped) -> None:
        self.is_stopped = True
        if not notification.graceful:
            logger.warning("left the metadata quorum before another leader was elected: the shutdown timed out")


def control_records(data: Buffer) -> list[object]:
    """Return the messages of the control records in a snapshot."""
    messages: list[object] = []
    for pos, header in read_batches(data):
        if header.is_control:
            messages += (entry.message for entry in entries(data, pos, header) if isinstance(entry, ControlEntry))
    return messages


def _history(log: MetadataLog, static_voters: VoterSet | None) -> ControlHistory:
    """Read the voters and kraft.versions of the latest snapshot and of the log."""
    history = ControlHistory(static_voters)
    latest = log.latest_snapshot
    if latest is not None:
        for record in control_records(log.snapshot_content(latest)):
            history.add(BOOTSTRAP_OFFSET if latest == BOOTSTRAP_SNAPSHOT else latest.offset - 1, record)
    offset = log.start_offset
    while data := log.read_bytes(offset, _READ_BYTES):
        for pos, header in read_batches(data, partial_tail=True):
            if header.is_control:
                for entry in entries(data, pos, header):
                    if isinstance(entry, ControlEntry):
                        history.add(entry.offset, entry.message)
            offset = header.next_offset
    return history
