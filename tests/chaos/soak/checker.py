"""Searches a history for anomalies. Their names are those of Jepsen's tests of Kafka.

    anomalies = check(read_history(folder))

| anomaly | what happened |
|---|---|
| lost write | a record was acknowledged, or its transaction committed, but is not at its offset at the end |
| duplicate | a record exists twice |
| inconsistent offset | two records were seen at the same offset |
| aborted read | a `read_committed` consumer read a record of an aborted transaction |
| torn transaction | only some records of a transaction exist at the end |
| nonmonotonic send | a later record of a producer is before an earlier one |
| nonmonotonic poll | a consumer read the same or an earlier offset again, though its assignment had not changed |
| poll skip | a consumer skipped a record |
| phantom read | a consumer read a record that does not exist at the end |
| lost commit | a new owner of a partition began before the committed offset |
| commit skip | a new owner of a partition began after every offset that was ever committed |
| copied wrongly | a copy differs from its source |

The checks do not depend on the faults: an acknowledgement must hold under all of them. A producer that continues with a
new epoch may write duplicates, because brokers cannot recognize them. Producers bump their epoch after they gave up a
record. librdkafka also does so if a later batch is acknowledged before an earlier one, which the old leader wrote and
the new leader rejected because it did not know its leader epoch yet.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise, zip_longest

from tests.chaos.soak.history import Event

Partition = tuple[str, int]
"""A topic and the index of a partition."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A violation of Kafka's guarantees."""

    kind: str
    description: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.description}"


class _HistoryIndex:
    """The events of a history by kind and partition."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._offsets: dict[Partition, list[int]] = {}
        self.acks: dict[Partition, list[Event]] = defaultdict(list)
        self.final: dict[Partition, list[tuple[int, str]]] = {}
        self.polls: list[Event] = []
        self.commits: list[Event] = []
        self.may_duplicate: set[str] = set()
        """Producers that gave up a record outside a transaction, or bumped their epoch for other reasons."""
        self.assigned: dict[tuple[str, int], Event] = {}
        transactions: dict[tuple[str, int], Event] = {}
        failed: list[Event] = []
        for event in events:
            match event["e"]:
                case "ack":
                    self.acks[event["topic"], event["p"]].append(event)
                case "fail":
                    failed.append(event)
                case "epoch":
                    self.may_duplicate.add(event["who"])
                case "final":
                    self.final[event["topic"], event["p"]] = [(offset, name) for offset, name in event["r"]]
                case "poll":
                    self.polls.append(event)
                case "commit":
                    self.commits.append(event)
                case "assign":
                    self.assigned[event["who"], event["a"]] = event
                case "txn":
                    transactions[event["who"], event["n"]] = event
        self.transactions = list(transactions.values())
        self.in_transactions = {
            (topic, part, name) for transaction in self.transactions for topic, part, name in transaction["values"]
        }
        self.may_duplicate |= {
            event["who"] for event in failed if (event["topic"], event["p"], event["v"]) not in self.in_transactions
        }

    def offsets(self, partition: Partition) -> list[int]:
        """Return the offsets of all records at the end."""
        if partition not in self._offsets:
            self._offsets[partition] = [offset for offset, _ in self.final[partition]]
        return self._offsets[partition]


def check(events: Iterable[Event], *, source: str = "plain", copy: str = "copy") -> list[Anomaly]:
    """Return all anomalies of a history."""
    history = _HistoryIndex(events)
    assert history.final, "the history has no final contents"
    return [
        *_lost_writes(history),
        *_duplicates(history, copy),
        *_reordered_sends(history, copy),
        *_broken_transactions(history, copy),
        *_wrong_polls(history),
        *_wrong_commits(history),
        *_wrong_copies(history, source, copy),
    ]


def _lost_writes(history: _HistoryIndex) -> Iterator[Anomaly]:
    for partition, acks in history.acks.items():
        records = dict(history.final[partition])
        names = {*records.values()}
        for ack in acks:
            # If a broker knows that a batch was written, but not its offset, it acknowledges it without an offset.
            exists = ack["v"] in names if ack["o"] is None else records.get(ack["o"]) == ack["v"]
            if (*partition, ack["v"]) not in history.in_transactions and not exists:
                actual = f"{records[ack['o']]} is at this offset" if ack["o"] in records else "the offset has no record"
                yield Anomaly("lost write", f"{ack['v']} was acknowledged at {_show(partition)}@{ack['o']}, {actual}")


def _duplicates(history: _HistoryIndex, copy: str) -> Iterator[Anomaly]:
    """Yield records that are at several offsets, and offsets with several records."""
    names_by_offset: dict[tuple[str, int, int], set[str]] = defaultdict(set)
    for partition, records in history.final.items():
        repeated = [name for name, times in Counter(name for _, name in records).items() if times > 1]
        for name in repeated:
            if partition[0] == copy or _parse_name(name)[0].split(".")[0] in history.may_duplicate:
                continue
            offsets = [offset for offset, other in records if other == name]
            yield Anomaly("duplicate", f"{name} is in {_show(partition)} at {offsets}")
        for offset, name in records:
            names_by_offset[*partition, offset].add(name)
    for partition, acks in history.acks.items():
        for ack in acks:
            if ack["o"] is not None:
                names_by_offset[*partition, ack["o"]].add(ack["v"])
    for poll in history.polls:
        for offset, name in poll["r"]:
            names_by_offset[poll["topic"], poll["p"], offset].add(name)
    for (topic, index, offset), names in names_by_offset.items():
        if len(names) > 1:
            yield Anomaly("inconsistent offset", f"{_show((topic, index))}@{offset} had {sorted(names)}")


def _reordered_sends(history: _HistoryIndex, copy: str) -> Iterator[Anomaly]:
    """Yield records that are not in the order in which their producer sent them, which their names show."""
    for partition, records in history.final.items():
        if partition[0] == copy:
            continue  # `_wrong_copies` checks the order of copies
        last: dict[str, tuple[int, ...]] = {}
        for offset, name in records:
            producer, number = _parse_name(name)
            if producer.split(".")[0] not in history.may_duplicate and last.get(producer, number) > number:
                yield Anomaly("nonmonotonic send", f"{name} at {_show(partition)}@{offset} is after {last[producer]}")
            last[producer] = number


def _parse_name(name: str) -> tuple[str, tuple[int, ...]]:
    producer, first, second = name.split("/")
    return producer, (int(first), int(second))


def _broken_transactions(history: _HistoryIndex, copy: str) -> Iterator[Anomaly]:
    """Yield transactions that are not atomic or contradict their outcome. `_wrong_copies` checks the copies."""
    existing = {(*partition, name) for partition, records in history.final.items() for _, name in records}
    read = {(poll["topic"], poll["p"], name) for poll in history.polls for _, name in poll["r"]}
    for transaction in history.transactions:
        records = [tuple(record) for record in transaction["values"] if record[0] != copy]
        kept = [record for record in records if record in existing]
        shown = f"transaction {transaction['n']} of {transaction['who']}"
        if kept and len(kept) < len(records):
            missing = [record for record in records if record not in existing]
            yield Anomaly("torn transaction", f"{shown} ({transaction['end']}): {kept} exist, {missing} do not")
        elif transaction["end"] == "commit" and records and not kept:
            yield Anomaly("lost write", f"{shown} was committed, but none of its records exists: {records}")
        if transaction["end"] == "abort":
            for record in records:
                if record in existing or record in read:
                    yield Anomaly("aborted read", f"{record} of {shown}, which was aborted, was read")


def _wrong_polls(history: _HistoryIndex) -> Iterator[Anomaly]:
    offsets_of = {partition: history.offsets(partition) for partition in history.final}
    names = {partition: {name for _, name in records} for partition, records in history.final.items()}
    index_of = {
        partition: {offset: index for index, offset in enumerate(offsets)} for partition, offsets in offsets_of.items()
    }
    for (consumer, assignment, partition), records in _polled_records(history).items():
        shown = f"{consumer} in its assignment {assignment} of {_show(partition)}"
        index = index_of[partition]
        for (earlier, _), (later, _) in pairwise(records):
            if later <= earlier:
                yield Anomaly("nonmonotonic poll", f"{shown} read {later} after {earlier}")
            elif earlier in index and later in index:
                skipped = offsets_of[partition][index[earlier] + 1 : index[later]]
                if skipped:
                    yield Anomaly("poll skip", f"{shown} read {later} after {earlier}, without {skipped[:10]}")
        for offset, name in records:
            if name not in names[partition]:
                yield Anomaly("phantom read", f"{shown} read {name} at {offset}, which does not exist at the end")


def _polled_records(history: _HistoryIndex) -> dict[tuple[str, int, Partition], list[tuple[int, str]]]:
    """Return the records that were read, by consumer, assignment and partition, in the order of reading."""
    polled: dict[tuple[str, int, Partition], list[tuple[int, str]]] = defaultdict(list)
    for poll in history.polls:
        polled[poll["who"], poll["a"], (poll["topic"], poll["p"])] += [(offset, name) for offset, name in poll["r"]]
    return polled


def _wrong_commits(history: _HistoryIndex) -> Iterator[Anomaly]:
    """Yield new owners of partitions that began before or after the committed offsets."""
    commits: dict[tuple[str, Partition], list[tuple[Event, int]]] = defaultdict(list)
    for commit in history.commits:
        for index, offset in commit["offsets"].items():
            commits[commit["group"], (commit["topic"], int(index))].append((commit, offset))
    for (consumer, number, partition), records in _polled_records(history).items():
        assigned, (first, _) = history.assigned[consumer, number], records[0]
        group = assigned.get("group")
        if group is None:
            continue
        group_commits = commits[group, partition]
        shown = f"{consumer} of {group} began {_show(partition)} at {first}"
        committed = max(
            (offset for commit, offset in group_commits if commit["ok"] and commit["t"] < assigned["t"]), default=0
        )
        if first < committed:
            yield Anomaly("lost commit", f"{shown}, though {committed} had been committed before")
        if not _begins_at_a_commit(history.offsets(partition), first, {0, *(offset for _, offset in group_commits)}):
            yield Anomaly("commit skip", f"{shown}, which no member had committed")


def _begins_at_a_commit(offsets: list[int], first: int, committed: set[int]) -> bool:
    """Whether `first` is the offset of the first record at or after a committed offset. If an offset beyond the end was
    committed, any record may be the first."""
    index = bisect_left(offsets, first)
    previous = offsets[index - 1] if index else -1
    return any(previous < offset <= first or offset > offsets[-1] for offset in committed) if offsets else True


def _wrong_copies(history: _HistoryIndex, source: str, copy: str) -> Iterator[Anomaly]:
    """Yield the first difference between a copy and its source. Copies keep the names of their records."""
    for partition, copies in history.final.items():
        if partition[0] == copy:
            pairs = zip_longest((name for _, name in history.final[source, partition[1]]), (name for _, name in copies))
            for index, (expected, actual) in enumerate(pairs):
                if expected != actual:
                    yield Anomaly(
                        "copied wrongly", f"record {index} of {_show(partition)} is {actual} instead of {expected}"
                    )
                    break


def _show(partition: Partition) -> str:
    return f"{partition[0]}-{partition[1]}"
