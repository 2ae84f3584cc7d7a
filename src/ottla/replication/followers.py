"""What a leader knows of one of its followers: how far it is, and since when it has kept up."""

from __future__ import annotations

NO_OFFSET = -1


class Follower:
    """One follower of a partition that is led here."""

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
        """Which life of its broker fetched; -1 if it did not say, None before the first fetch."""
        self.caught_up_ms = 0
        """When it last had everything that the leader had then."""
        self.fetched_ms = 0
        self.fetched_end = NO_OFFSET
        """The leader's log end at its last fetch."""

    def begin(self, *, in_sync: bool, is_new_leader: bool, leader_end: int, now_ms: int) -> None:
        """A term begins. Who is in sync is not late before it had time to fetch; others do not count until they do."""
        self.caught_up_ms = now_ms if in_sync else 0
        if is_new_leader:
            self.log_end_offset = self.log_start_offset = self.fetched_end = NO_OFFSET
            self.fetched_ms = 0
            self.broker_epoch = None
        else:
            self.fetched_end = leader_end
            self.fetched_ms = now_ms if in_sync else 0

    def fetched(self, offset: int, log_start_offset: int, *, leader_end: int, broker_epoch: int, now_ms: int) -> None:
        """It asks for an offset, and so has everything before it."""
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self.fetched_end:
            # It has what was there at its fetch before: with many small appends it would never have more.
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.fetched_ms, self.fetched_end = now_ms, max(leader_end, self.fetched_end)
        self.log_end_offset, self.log_start_offset = offset, log_start_offset
        self.broker_epoch = broker_epoch

    def on_caught_up(self, at_ms: int) -> None:
        """It had everything at its last fetch, which was then, and which nobody looked at for that reason."""
        self.caught_up_ms = max(self.caught_up_ms, at_ms)
        self.fetched_ms = max(self.fetched_ms, at_ms)

    def is_caught_up(self, leader_end: int, now_ms: int, max_lag_ms: int) -> bool:
        """Whether it has everything, or had everything not long ago."""
        return self.log_end_offset == leader_end or now_ms - self.caught_up_ms <= max_lag_ms
