"""How long events take: in the queue, in the decision, in the write, and until the commit.

All machines of a kind share one object, so that figures survive when a partition moves. Times are nanoseconds.
"""

from __future__ import annotations

from typing import Final

from ottla.storage.state_machine.histogram import Counts, new_counts

SPANS: Final = {
    "event_queue_time_ms": "Milliseconds that events waited in the queue.",
    "event_processing_time_ms": "Milliseconds to decide on an event and to write its records.",
    "event_purgatory_time_ms": "Milliseconds that answers waited for the commit of their records.",
    "batch_linger_time_ms": "Milliseconds from a decision to the start of the write of its records.",
    "batch_flush_time_ms": "Milliseconds to write records.",
    "partition_load_time_ms": "Milliseconds to load a partition.",
}


class EventTimes:
    """The histograms of a kind of machine."""

    def __init__(self) -> None:
        self.queue, self.processing, self.purgatory = new_counts(), new_counts(), new_counts()
        self.linger, self.flush, self.load = new_counts(), new_counts(), new_counts()
        self.started = 0
        """The events taken from the queue."""
        self.timed_out = 0
        """The events of these whose deadline had passed."""
        self.busy_ns = 0
        """The total processing time of events."""
        self._marks: list[tuple[int, int, dict[str, Counts]]] = []

    def spans(self) -> dict[str, Counts]:
        """Return all histograms by the names of `SPANS`."""
        counts = (self.queue, self.processing, self.purgatory, self.linger, self.flush, self.load)
        return dict(zip(SPANS, counts, strict=True))

    def remember(self, now_ns: int) -> None:
        """Copy the histograms. Called once a minute: quantiles and the idle ratio cover the last one to two minutes."""
        copies = {name: counts[:] for name, counts in self.spans().items()}
        self._marks = [*self._marks[-1:], (now_ns, self.busy_ns, copies)]

    def recent(self, name: str) -> Counts | None:
        """Return a histogram as of the beginning of the recent past; None if nothing was copied yet."""
        return self._marks[0][2][name] if self._marks else None

    def idle_ratio(self, now_ns: int) -> float:
        """Return the share of the recent past in which no event was processed."""
        if not self._marks or now_ns <= self._marks[0][0]:
            return 1.0
        since_ns, busy_ns, _ = self._marks[0]
        return min(max(1 - (self.busy_ns - busy_ns) / (now_ns - since_ns), 0.0), 1.0)
