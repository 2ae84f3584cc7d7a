"""The simple assignor computes the same assignments as Kafka's."""

from pathlib import Path
from typing import Any

from ottla.coordinators.groups.share.simple_assignor import AssignorMember, assign
from ottla.protocol.java.hash_order import grown_table_size, hash_order, string_hash, uuid_hash
from tests.unit.coordinators.groups.consumer.test_against_kafka import STEPS, WALKS, Walk, ask_kafka, show_id


class ShareWalk(Walk):
    """A share group with changing members and topics."""

    def question(self) -> dict[str, Any]:
        return {**super().question(), "assignor": "simple"}

    def assign(self) -> dict[str, dict[str, list[int]]]:
        names = hash_order(self.members, string_hash, grown_table_size(len(self.members)))
        readers = {}
        for name in names:
            topics = self.members[name][1]
            ordered = hash_order(sorted(topics), uuid_hash, grown_table_size(len(topics)))
            readers[name] = AssignorMember(ordered, self.targets.get(name, {}))
        partitions = {topic: range(number) for topic, number in self.partitions.items()}
        found = assign(readers, partitions, uniform=self.is_uniform)
        self.targets = {name: found.get(name, {}) for name in names}
        return {
            name: {show_id(topic): list(numbers) for topic, numbers in target.items()} for name, target in found.items()
        }


def test_the_simple_assignor_agrees_with_kafkas(tmp_path: Path) -> None:
    questions, ours = [], []
    for seed in range(WALKS):
        walk = ShareWalk(seed)
        for _ in range(STEPS):
            walk.step()
            questions.append(walk.question())
            ours.append(walk.assign())
    answers = ask_kafka(tmp_path, questions)
    for question, mine, theirs in zip(questions, ours, answers, strict=True):
        assert mine == theirs, question
