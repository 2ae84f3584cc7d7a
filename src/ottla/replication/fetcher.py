"""One fetcher of a follower: builds the requests to one leader and handles the responses. It has no socket or clock.

Requests use two lanes. The main lane has one long fetch after another, in a fetch session with all partitions. The side
lane has requests that must not wait for such a fetch: fetches of partitions that were added in the meantime, which a
new leader's producers may be waiting for, and ListOffsets. A response for a partition that has changed since is
ignored, so both lanes may fetch the same partition.

A failed partition is retried after a backoff that grows up to `replica.fetch.backoff.ms`. After an unrecoverable error
it waits for the next leader.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Protocol

from ottla.protocol.errors import (
    NONE,
    ApiError,
    FencedLeaderEpoch,
    FetchSessionError,
    FetchSessionIdNotFound,
    OffsetOutOfRange,
    StorageFailed,
    by_code,
    name_of,
)
from ottla.protocol.messages.rpc.fetch import FetchRequest, FetchResponse, PartitionData
from ottla.protocol.messages.rpc.list_offsets import ListOffsetsResponse
from ottla.protocol.wire.errors import ProtocolError
from ottla.replication.fetch_requests import FetchLimits, FetchPosition, FollowerSession, Requests, fetch_position_of
from ottla.replication.partition import Partition
from ottla.replication.partition_fetch_state import Key, PartitionFetchState, Phase, append_fetched, common_end
from ottla.replication.truncation_queue import TruncationQueue
from ottla.storage.directories.logs import Logs

logger = logging.getLogger(__name__)

_FIRST_PAUSE_MS = 20
_HELD_BACK_MS = 100
_NOT_REGISTERED_MS = 20


class Lane(Enum):
    MAIN = 0
    SIDE = 1


class Throttle(Protocol):
    """The throttle of followers that are not in sync (`follower.replication.throttled.rate`)."""

    def holds_back(self, topic: str, index: int) -> bool:
        """Return whether a partition is throttled and the limit is reached."""
        ...

    def count(self, topic: str, index: int, size: int) -> None:
        """Count bytes that were fetched for a partition."""
        ...


class Fetcher:
    """Fetches partitions from one broker."""

    def __init__(
        self,
        broker_id: int,
        source: int,
        limits: FetchLimits,
        logs: Logs,
        truncation_queue: TruncationQueue,
        *,
        broker_epoch: Callable[[], int],
        throttle: Throttle,
        on_failed: Callable[[Partition], None],
        on_ready: Callable[[], None],
    ) -> None:
        self.source = source
        self.fetch_states: dict[Key, PartitionFetchState] = {}
        self._limits = limits
        self._requests = Requests(broker_id, limits)
        self._logs = logs
        self._truncation_queue = truncation_queue
        self._broker_epoch = broker_epoch
        self._throttle = throttle
        self._on_failed = on_failed
        self._on_ready = on_ready
        """Called when there may be new requests since the last `poll`."""
        self._session = FollowerSession()
        self._changed: set[Key] = set()
        """Partitions that changed since the last fetch of the main lane, or that it does not fetch yet."""
        self._finding_offsets: set[Key] = set()
        """Partitions that need the leader's log end or log start."""
        self._paused: dict[Key, int] = {}
        """Partitions in backoff, and the time of their retry."""
        self._busy: dict[Lane, Mapping[Key, FetchPosition]] = {}
        self._on_start_moved = self._report_start
        self._failures = 0
        self._blocked_until_ms = 0

    def __repr__(self) -> str:
        return f"Fetcher(from broker {self.source}, {len(self.fetch_states)} partitions)"

    # -- partitions --

    def add(self, partition: Partition) -> PartitionFetchState:
        """Start to fetch a partition in its current leader epoch."""
        state = PartitionFetchState(partition)
        self.fetch_states[state.key] = state
        partition.on_start_moved = self._on_start_moved
        log = partition.log
        if log.epochs.latest < 0 and log.log_end_offset > log.high_watermark:
            # Without epochs the leader cannot find the point of divergence: only committed records are equal.
            self._truncate(state, log.high_watermark)
        else:
            self._changed.add(state.key)
            self._on_ready()
        return state

    def remove(self, key: Key) -> None:
        """Stop fetching a partition."""
        state = self.fetch_states.pop(key, None)
        if state is not None:
            state.is_gone = True
            state.partition.on_start_moved = None
            self._changed.add(key)
            self._finding_offsets.discard(key)
            self._paused.pop(key, None)

    def _report_start(self, partition: Partition) -> None:
        """Report the new log start to the leader with the next fetch, after retention has moved it."""
        self._changed.add((partition.topic_id, partition.index))

    @property
    def max_lag(self) -> int:
        return max((state.lag or 0 for state in self.fetch_states.values()), default=0)

    # -- requests --

    def poll(self, now_ms: int) -> list[tuple[Lane, Any]]:
        """Return the requests to send now. The caller passes each outcome to `handle_response` or `handle_failure`."""
        if now_ms < self._blocked_until_ms or self._broker_epoch() < 0:
            return []
        for key in [key for key, until_ms in self._paused.items() if until_ms <= now_ms]:
            self._resume(key)
        requests: list[tuple[Lane, Any]] = []
        if Lane.MAIN not in self._busy and (request := self._main_fetch(now_ms)) is not None:
            requests.append((Lane.MAIN, request))
        if Lane.SIDE not in self._busy and (request := self._side_request(now_ms)) is not None:
            requests.append((Lane.SIDE, request))
        return requests

    def next_ms(self, now_ms: int) -> int | None:
        """Return when to poll again if nothing happens before; None if there is no need."""
        if not self.fetch_states:
            return None
        if self._broker_epoch() < 0:
            return now_ms + _NOT_REGISTERED_MS
        if now_ms < self._blocked_until_ms:
            return self._blocked_until_ms
        return min(self._paused.values(), default=None)

    def _main_fetch(self, now_ms: int) -> FetchRequest | None:
        session = self._session
        sent = session.sent
        if session.is_new:
            self._changed.update(self.fetch_states)
        wanted: list[tuple[Key, FetchPosition]] = []
        forgotten: list[Key] = []
        for key in self._changed:
            state = self.fetch_states.get(key)
            if state is None or not self._is_ready(state, now_ms):
                if sent.pop(key, None) is not None:
                    forgotten.append(key)
                continue
            requested = fetch_position_of(state)
            if sent.get(key) != requested:
                sent[key] = requested
                wanted.append((key, requested))
        self._changed.clear()
        if not sent and (session.is_new or not forgotten):
            return None
        self._busy[Lane.MAIN] = sent
        return self._requests.fetch(wanted, forgotten, session=session, broker_epoch=self._broker_epoch())

    def _side_request(self, now_ms: int) -> Any:
        if self._finding_offsets:
            finding = [self.fetch_states[key] for key in self._finding_offsets]
            self._busy[Lane.SIDE] = {state.key: fetch_position_of(state) for state in finding}
            return self._requests.offsets(finding)
        if Lane.MAIN not in self._busy:
            return None
        wanted = {
            state.key: fetch_position_of(state)
            for state in self._states_of(self._changed)
            if not self._is_on_main(state) and self._is_ready(state, now_ms)
        }
        if not wanted:
            return None
        self._busy[Lane.SIDE] = wanted
        return self._requests.fetch(wanted.items(), (), session=None, broker_epoch=self._broker_epoch())

    def _is_on_main(self, state: PartitionFetchState) -> bool:
        """Return whether the main lane's fetch includes the partition in its current leader epoch."""
        sent = self._session.sent.get(state.key)
        return sent is not None and sent.leader_epoch == state.leader_epoch

    def _is_ready(self, state: PartitionFetchState, now_ms: int) -> bool:
        if state.phase is not Phase.FETCHING or state.retry_at_ms:
            return False
        partition = state.partition
        if not state.is_in_sync and self._throttle.holds_back(partition.topic, partition.index):
            state.retry_at_ms = self._paused[state.key] = now_ms + _HELD_BACK_MS
            return False
        return True

    def _resume(self, key: Key) -> None:
        del self._paused[key]
        state = self.fetch_states[key]
        state.retry_at_ms = 0
        if state.phase is Phase.FETCHING:
            self._changed.add(key)
        elif state.phase is not Phase.TRUNCATING:
            self._finding_offsets.add(key)

    def _states_of(self, keys: Iterable[Key]) -> Iterator[PartitionFetchState]:
        for key in keys:
            state = self.fetch_states.get(key)
            if state is not None:
                yield state

    # -- responses --

    def handle_response(self, lane: Lane, response: Any, now_ms: int) -> None:
        """Handle a response."""
        requested = self._busy.pop(lane)
        if isinstance(response, ListOffsetsResponse):
            self._handle_offsets_response(response, requested, now_ms)
        elif lane is Lane.SIDE:
            self._handle_fetch_response(response, requested, now_ms)
        elif not response.error_code:
            self._handle_fetch_response(response, requested, now_ms)
            self._session.on_response(response.session_id)
        else:
            error = by_code(response.error_code)
            if issubclass(error, FetchSessionIdNotFound):
                self._session.reset()
            else:
                self._session.restart()
            if issubclass(error, FetchSessionError) and not self._failures:
                self._failures = 1  # the leader does not know the session: begin a new one without backoff
            else:
                self.handle_failure(Lane.MAIN, error(f"broker {self.source} rejected a fetch"), now_ms)

    def handle_failure(self, lane: Lane, error: ApiError, now_ms: int) -> None:
        """Handle a request without a response."""
        self._busy.pop(lane, None)
        if lane is Lane.MAIN:
            self._session.restart()
        if not self._failures:
            logger.info("Fetching from broker %d failed, retrying: %s", self.source, error)
        self._blocked_until_ms = now_ms + self._pause_ms(self._failures)
        self._failures += 1

    def _handle_fetch_response(
        self, response: FetchResponse, requested: Mapping[Key, FetchPosition], now_ms: int
    ) -> None:
        if response.error_code:
            self.handle_failure(
                Lane.SIDE, by_code(response.error_code)(f"broker {self.source} rejected a fetch"), now_ms
            )
            return
        self._failures = 0
        for topic in response.responses:
            for data in topic.partitions:
                key = topic.topic_id, data.partition_index
                state = self._current(key, requested)
                if state is not None and state.phase is Phase.FETCHING:
                    self._handle_partition(state, data, now_ms)

    def _current(self, key: Key, requested: Mapping[Key, FetchPosition]) -> PartitionFetchState | None:
        """Return the state of a partition in a response, unless it has changed since the request."""
        state, then = self.fetch_states.get(key), requested.get(key)
        if state is None or then is None or state.retry_at_ms:
            return None
        same = then.leader_epoch == state.leader_epoch and then.offset == state.partition.log.log_end_offset
        return state if same else None

    def _handle_partition(self, state: PartitionFetchState, data: PartitionData, now_ms: int) -> None:
        if data.error_code:
            self._handle_partition_error(state, data.error_code, now_ms)
            return
        state.failures = 0
        partition = state.partition
        log = partition.log
        if data.diverging_epoch is not None:
            self._truncate(state, common_end(log, data.diverging_epoch.epoch, data.diverging_epoch.end_offset))
            return
        try:
            size = append_fetched(self._logs, partition, data, now_ms)
        except ProtocolError as error:
            logger.error("%s fetched invalid records from broker %d, retrying: %s", partition, self.source, error)
            self._pause(state, now_ms)
            return
        except Exception as error:  # noqa: BLE001 (must not stop the other partitions)
            self._stop_after_error(state, error)
            return
        state.lag = max(data.high_watermark - log.log_end_offset, 0)
        if size:
            self._throttle.count(partition.topic, partition.index, size)
            self._changed.add(state.key)

    def _handle_partition_error(self, state: PartitionFetchState, code: int, now_ms: int) -> None:
        error = by_code(code)
        if issubclass(error, FencedLeaderEpoch):
            logger.info("%s is fenced: it waits for the metadata of a newer leader epoch", state)
            self._stop(state)
        elif issubclass(error, OffsetOutOfRange):
            state.phase = Phase.FINDING_END
            self._changed.add(state.key)
            if state.failures:
                self._pause(state, now_ms)
            else:
                state.failures = 1
                self._finding_offsets.add(state.key)
        else:
            if state.failures >= 3:
                logger.info("Fetching %s from broker %d failed: %s", state, self.source, name_of(code))
            self._pause(state, now_ms)

    def _handle_offsets_response(
        self, response: ListOffsetsResponse, requested: Mapping[Key, FetchPosition], now_ms: int
    ) -> None:
        self._failures = 0
        by_name = {(state.partition.topic, state.partition.index): state for state in self._states_of(requested)}
        for topic in response.topics:
            for data in topic.partitions:
                state = by_name.get((topic.name, data.partition_index))
                if state is None or self._current(state.key, requested) is None:
                    continue
                self._finding_offsets.discard(state.key)
                if data.error_code != NONE:
                    self._handle_partition_error(state, data.error_code, now_ms)
                elif state.phase is Phase.FINDING_END:
                    self._handle_end(state, data.offset)
                elif state.phase is Phase.FINDING_START:
                    self._handle_start(state, data.offset, now_ms)

    def _handle_end(self, state: PartitionFetchState, end: int) -> None:
        state.leader_end = end
        if end < state.partition.log.log_end_offset:
            # The leader has less, and no epoch in common, only after an unclean election.
            self._truncate(state, end)
        else:
            state.phase = Phase.FINDING_START
            self._finding_offsets.add(state.key)

    def _handle_start(self, state: PartitionFetchState, start: int, now_ms: int) -> None:
        partition = state.partition
        if start > partition.log.log_end_offset:
            logger.info("Emptying %s: the leader's log starts later, at %d", partition.log, start)
            try:
                self._logs.truncate_fully_and_start_at(partition.topic, partition.index, start, now_ms=now_ms)
            except (OSError, StorageFailed) as error:
                self._stop_after_error(state, error)
                return
        state.lag = max(state.leader_end - partition.log.log_end_offset, 0)
        self._resume_fetching(state)

    # -- partition states --

    def _truncate(self, state: PartitionFetchState, offset: int) -> None:
        state.phase = Phase.TRUNCATING
        self._changed.add(state.key)
        self._truncation_queue.truncate(state, offset, self._on_truncated)

    def _on_truncated(self, state: PartitionFetchState, error: Exception | None) -> None:
        if state.is_gone:
            return
        if error is not None:
            self._stop_after_error(state, error)
        else:
            self._resume_fetching(state)

    def _resume_fetching(self, state: PartitionFetchState) -> None:
        state.phase = Phase.FETCHING
        state.partition.mark_watches()
        self._changed.add(state.key)
        self._on_ready()

    def _pause(self, state: PartitionFetchState, now_ms: int) -> None:
        state.retry_at_ms = self._paused[state.key] = now_ms + self._pause_ms(state.failures)
        state.failures += 1
        self._finding_offsets.discard(state.key)
        self._changed.add(state.key)

    def _pause_ms(self, failures: int) -> int:
        return min(_FIRST_PAUSE_MS << min(failures, 16), self._limits.backoff_ms)

    def _stop_after_error(self, state: PartitionFetchState, error: Exception) -> None:
        unexpected = not isinstance(error, ApiError | OSError)
        logger.error(
            "Stopped fetching %s until it has a new leader: %s", state, error, exc_info=error if unexpected else None
        )
        self._stop(state)

    def _stop(self, state: PartitionFetchState) -> None:
        """Stop fetching a partition until it has a new leader."""
        self.remove(state.key)
        self._on_failed(state.partition)
