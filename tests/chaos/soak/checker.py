"""What must not be in a history, in the words of Jepsen's tests of Kafka.

    anomalies = check(read_history(folder))

| anomaly | what happened |
|---|---|
| lost write | a record was acknowledged, or its transaction committed, and is not at its offset in the end |
| duplicate | a record is there twice |
| inconsistent offset | two records have been at the same offset |
| aborted read | somebody who reads what is committed saw a record of a transaction that was aborted |
| torn transaction | of a transaction's records, some are there in the end and some are not |
| nonmonotonic send | a later record of a producer is before an earlier one |
| nonmonotonic poll | a consumer read an offset again, or an earlier one, though its assignment had not changed |
| poll skip | a consumer went on beyond a record without having read it |
| phantom read | a record was read that is not there in the end |
| lost commit | a new owner of a partition began before what was committed |
| commit skip | a new owner of a partition began after anything that was ever committed |
| copied wrongly | a copy is not, record by record, what was to be copied |

Nothing here knows what was done to the cluster: an acknowledgement is a promise whatever happens. A producer that goes
on with another epoch may write twice, since no broker can tell what it repeats: one that gave up a record does so, and
librdkafka's also when a later batch is acknowledged before an earlier one, which was written by the last leader and
refused by the next while that did not know of its term yet.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise, zip_longest

from tests.chaos.soak.history import Event

Where = tuple[str, int]
"""A topic and one of its partitions."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """Something that must not be."""

    kind: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


class _Facts:
    """The history, sorted by what it is about."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._offsets: dict[Where, list[int]] = {}
        self.acks: dict[Where, list[Event]] = defaultdict(list)
        self.final: dict[Where, list[tuple[int, str]]] = {}
        self.polls: list[Event] = []
        self.commits: list[Event] = []
        self.began_anew: set[str] = set()
        """Producers that gave up a record outside of a transaction, or went on with another epoch for other reasons."""
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
                    self.began_anew.add(event["who"])
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
            (topic, part, name) for each in self.transactions for topic, part, name in each["values"]
        }
        self.began_anew |= {
            each["who"] for each in failed if (each["topic"], each["p"], each["v"]) not in self.in_transactions
        }

    def offsets(self, where: Where) -> list[int]:
        """The offsets of all records that are there in the end."""
        if where not in self._offsets:
            self._offsets[where] = [offset for offset, _ in self.final[where]]
        return self._offsets[where]


def check(events: Iterable[Event], *, source: str = "plain", copy: str = "copy") -> list[Anomaly]:
    """Everything that is wrong; empty if all is well."""
    facts = _Facts(events)
    assert facts.final, "nobody looked at what is there in the end"
    return [
        *_lost_writes(facts),
        *_places(facts, copy),
        *_order_of_sends(facts, copy),
        *_transactions(facts, copy),
        *_polls(facts),
        *_commits(facts),
        *_copies(facts, source, copy),
    ]


def _lost_writes(facts: _Facts) -> Iterator[Anomaly]:
    for where, acks in facts.acks.items():
        found = dict(facts.final[where])
        names = {*found.values()}
        for ack in acks:
            # A batch that a broker knows to be written, but no longer where, is acknowledged without an offset.
            is_there = ack["v"] in names if ack["o"] is None else found.get(ack["o"]) == ack["v"]
            if (*where, ack["v"]) not in facts.in_transactions and not is_there:
                there = f"{found[ack['o']]} is there" if ack["o"] in found else "nothing is there"
                yield Anomaly("lost write", f"{ack['v']} was acknowledged at {_show(where)}@{ack['o']}, {there}")


def _places(facts: _Facts, copy: str) -> Iterator[Anomaly]:
    """A record has one place, and a place one record, whoever tells of it."""
    told: dict[tuple[str, int, int], set[str]] = defaultdict(set)
    for where, found in facts.final.items():
        twice = [name for name, times in Counter(name for _, name in found).items() if times > 1]
        for name in twice:
            if where[0] == copy or _numbered(name)[0].split(".")[0] in facts.began_anew:
                continue
            at = [offset for offset, each in found if each == name]
            yield Anomaly("duplicate", f"{name} is in {_show(where)} at {at}")
        for offset, name in found:
            told[*where, offset].add(name)
    for where, acks in facts.acks.items():
        for ack in acks:
            if ack["o"] is not None:
                told[*where, ack["o"]].add(ack["v"])
    for poll in facts.polls:
        for offset, name in poll["r"]:
            told[poll["topic"], poll["p"], offset].add(name)
    for (topic, part, offset), names in told.items():
        if len(names) > 1:
            yield Anomaly("inconsistent offset", f"at {_show((topic, part))}@{offset} were {sorted(names)}")


def _order_of_sends(facts: _Facts, copy: str) -> Iterator[Anomaly]:
    """Records of one producer are numbered by their names in the order in which they were sent to a partition."""
    for where, found in facts.final.items():
        if where[0] == copy:
            continue  # in the order of what is copied
        last: dict[str, tuple[int, ...]] = {}
        for offset, name in found:
            producer, number = _numbered(name)
            if producer.split(".")[0] not in facts.began_anew and last.get(producer, number) > number:
                yield Anomaly("nonmonotonic send", f"{name} at {_show(where)}@{offset} is after {last[producer]}")
            last[producer] = number


def _numbered(name: str) -> tuple[str, tuple[int, ...]]:
    producer, first, second = name.split("/")
    return producer, (int(first), int(second))


def _transactions(facts: _Facts, copy: str) -> Iterator[Anomaly]:
    """All or nothing, and as the producer was told. Copies have the names of what they copy: see `_copies`."""
    there = {(*where, name) for where, found in facts.final.items() for _, name in found}
    read = {(poll["topic"], poll["p"], name) for poll in facts.polls for _, name in poll["r"]}
    for each in facts.transactions:
        records = [tuple(record) for record in each["values"] if record[0] != copy]
        found = [record for record in records if record in there]
        shown = f"transaction {each['n']} of {each['who']}"
        if found and len(found) < len(records):
            missing = [record for record in records if record not in there]
            yield Anomaly("torn transaction", f"{shown} ({each['end']}): {found} are there, {missing} are not")
        elif each["end"] == "commit" and records and not found:
            yield Anomaly("lost write", f"{shown} was committed, and none of it is there: {records}")
        if each["end"] == "abort":
            for record in records:
                if record in there or record in read:
                    yield Anomaly("aborted read", f"{record} of {shown}, which was aborted, was read")


def _polls(facts: _Facts) -> Iterator[Anomaly]:
    offsets_of = {where: [offset for offset, _ in found] for where, found in facts.final.items()}
    names = {where: {name for _, name in found} for where, found in facts.final.items()}
    index = {where: {offset: place for place, offset in enumerate(found)} for where, found in offsets_of.items()}
    for (who, assignment, where), polled in _readings(facts).items():
        shown = f"{who} in its assignment {assignment} of {_show(where)}"
        for (earlier, _), (later, _) in pairwise(polled):
            if later <= earlier:
                yield Anomaly("nonmonotonic poll", f"{shown} read {later} after {earlier}")
            elif earlier in index[where] and later in index[where]:
                skipped = offsets_of[where][index[where][earlier] + 1 : index[where][later]]
                if skipped:
                    yield Anomaly("poll skip", f"{shown} read {later} after {earlier}, without {skipped[:10]}")
        for offset, name in polled:
            if name not in names[where]:
                yield Anomaly("phantom read", f"{shown} read {name} at {offset}, which is not there in the end")


def _readings(facts: _Facts) -> dict[tuple[str, int, Where], list[tuple[int, str]]]:
    """What was read, by consumer, assignment and partition, in the order of reading."""
    found: dict[tuple[str, int, Where], list[tuple[int, str]]] = defaultdict(list)
    for poll in facts.polls:
        found[poll["who"], poll["a"], (poll["topic"], poll["p"])] += [(offset, name) for offset, name in poll["r"]]
    return found


def _commits(facts: _Facts) -> Iterator[Anomaly]:
    """Whoever gets a partition begins where the group was: not before what was committed, and not after."""
    commits: dict[tuple[str, Where], list[tuple[Event, int]]] = defaultdict(list)
    for commit in facts.commits:
        for part, offset in commit["offsets"].items():
            commits[commit["group"], (commit["topic"], int(part))].append((commit, offset))
    for (who, number, where), polled in _readings(facts).items():
        assigned, (first, _) = facts.assigned[who, number], polled[0]
        group = assigned.get("group")
        if group is None:
            continue
        known = commits[group, where]
        shown = f"{who} of {group} began {_show(where)} at {first}"
        promised = max((offset for commit, offset in known if commit["ok"] and commit["t"] < assigned["t"]), default=0)
        if first < promised:
            yield Anomaly("lost commit", f"{shown}, though {promised} had been committed before")
        if not _begins_at_a_commit(facts.offsets(where), first, {0, *(offset for _, offset in known)}):
            yield Anomaly("commit skip", f"{shown}, which nobody had committed")


def _begins_at_a_commit(offsets: list[int], first: int, committed: set[int]) -> bool:
    """Whether the first record that was read is the first one there is from something committed on; of what is
    committed beyond the end, anything may be the first."""
    place = bisect_left(offsets, first)
    after = offsets[place - 1] if place else -1
    return any(after < offset <= first or offset > offsets[-1] for offset in committed) if offsets else True


def _copies(facts: _Facts, source: str, copy: str) -> Iterator[Anomaly]:
    """Copies have the names of what they are copies of, and its order."""
    for where, found in facts.final.items():
        if where[0] == copy:
            pairs = zip_longest((name for _, name in facts.final[source, where[1]]), (name for _, name in found))
            for place, (wanted, copied) in enumerate(pairs):
                if wanted != copied:
                    yield Anomaly("copied wrongly", f"record {place} of {_show(where)} is {copied}, and not {wanted}")
                    break


def _show(where: Where) -> str:
    return f"{where[0]}-{where[1]}"
