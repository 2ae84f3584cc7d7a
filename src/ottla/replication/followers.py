"""The leader's view of a follower: its offsets, and when it last was caught up."""

from __future__ import annotations

NO_OFFSET = -1


class Follower:
    """One follower of a partition that this broker leads."""

    __slots__ = (
        "broker",
        "broker_epoch",
        "caught_up_ms",
        "fetched_end",
        "fetched_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker: int) -> None:
        self.broker = broker
        self.log_end_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.broker_epoch: int | None = None
        """The broker epoch of its last fetch; -1 if the request had none, None before the first fetch."""
        self.caught_up_ms = 0
        """When it last had everything that the leader had at that time."""
        self.fetched_ms = 0
        self.fetched_end = NO_OFFSET
        """The leader's log end offset at its last fetch."""

    def begin(self, *, in_sync: bool, is_new_leader: bool, leader_end: int, now_ms: int) -> None:
        """Begin a leader's term. A replica in the ISR has time to fetch; others do not count until they fetch."""
        self.caught_up_ms = now_ms if in_sync else 0
        if is_new_leader:
            self.log_end_offset = self.log_start_offset = self.fetched_end = NO_OFFSET
            self.fetched_ms = 0
            self.broker_epoch = None
        else:
            self.fetched_end = leader_end
            self.fetched_ms = now_ms if in_sync else 0

    def fetched(self, offset: int, log_start_offset: int, *, leader_end: int, broker_epoch: int, now_ms: int) -> None:
        """Record a fetch: the follower has everything before the offset."""
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self.fetched_end:
            # It has what the leader had at the previous fetch. With many small appends it would never have more.
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.fetched_ms, self.fetched_end = now_ms, max(leader_end, self.fetched_end)
        self.log_end_offset, self.log_start_offset = offset, log_start_offset
        self.broker_epoch = broker_epoch

    def on_caught_up(self, at_ms: int) -> None:
        """Record that it had everything at its last fetch, which for that reason did not read this partition."""
        self.caught_up_ms = max(self.caught_up_ms, at_ms)
        self.fetched_ms = max(self.fetched_ms, at_ms)

    def is_caught_up(self, leader_end: int, now_ms: int, max_lag_ms: int) -> bool:
        """Return whether it has everything, or had everything within the allowed lag."""
        return self.log_end_offset == leader_end or now_ms - self.caught_up_ms <= max_lag_ms
