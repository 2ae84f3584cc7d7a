"""A table equals a model of it for random records and for failures at the worst moments, in every format."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.spark.tables.definition import Definition, TableHome
from ottla.spark.tables.failures import TableError
from ottla.spark.tables.maintenance import MaintenancePolicy, compact
from ottla.spark.tables.store import Store
from tests.spark.clusters import Cluster
from tests.spark.tables.local import LocalRun, define, home_in, produce

PARTITIONS = 2
BAD = (b"not json", b"[1]", b"\xff\xfe", b'{"a": NaN}')


class DriverDied(Exception):
    """Simulates the death of the driver."""


class Death:
    """Kills the driver just before or just after the n-th change to either table."""

    def __init__(self, stores: list[Store], countdown: int, *, after: bool) -> None:
        self._countdown = countdown
        self._after = after
        for store in stores:
            for name in ("commit_once", "add_columns"):
                setattr(store, name, self._watched(getattr(store, name)))

    def _watched(self, real: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            self._countdown -= 1
            if self._countdown == 0 and not self._after:
                raise DriverDied
            real(*arguments)
            if self._countdown == 0:
                raise DriverDied

        return call


class World:
    """A topic, its table, and the rows that the table should have."""

    def __init__(self, cluster: Cluster, home: TableHome, chance: random.Random, format_: str, mode: str) -> None:
        self.cluster = cluster
        self.home = home
        self.chance = chance
        self.topic = cluster.new_topic(PARTITIONS)
        layout = chance.choice([(), ("bucket(3, _key)",), ("day(timestamp)", "kind")])
        columns = {"kind": "string"} if layout and layout[-1] == "kind" else {}
        self.definition: Definition = define(
            cluster, self.topic, format=format_, mode=mode, partition_by=layout, columns=columns
        )
        self.records: list[tuple[int, bytes | None, Any]] = []
        """The partition, key and value of each record."""
        self.run = LocalRun(home, self.definition)
        self.deaths = 0

    def write(self) -> None:
        for partition in range(PARTITIONS):
            new = [self._record(partition) for _ in range(self.chance.randrange(6))]
            produce(self.cluster, self.topic, *new, partition=partition)
            self.records += [(partition, key, value) for key, value in new]

    def _record(self, partition: int) -> tuple[bytes | None, Any]:
        key = b"key-%d" % (self.chance.randrange(8) * PARTITIONS + partition)
        dice = self.chance.random()
        if dice < 0.1:
            return key, self.chance.choice(BAD)
        if dice < 0.25:
            return key, None
        if dice < 0.3:
            return None, {"a": 1}
        return key, self._value()

    def _value(self) -> dict[str, Any]:
        value: dict[str, Any] = {"a": self.chance.randrange(100)}
        for name in self.chance.sample(["b", "c", "d", "e", "kind", "A", "not.allowed"], 3):
            value[name] = self.chance.choice([7, 7, 2.5, "text", True, [1, 2], ["x"], {"x": 1}, {"x": 2, "y": "z"}])
        return value

    def step(self) -> None:
        """Do one random operation, perhaps with a death of the driver."""
        if self.chance.random() < 0.4:
            Death(
                [self.run.writer.rows, self.run.writer.dead_letters],
                self.chance.randrange(1, 4),
                after=self.chance.random() < 0.5,
            )
        try:
            dice = self.chance.random()
            if dice < 0.75:
                self.run.take(self.chance.choice([None, 1, 3, 10]))
            elif dice < 0.9:
                for store in (self.run.writer.rows, self.run.writer.dead_letters):
                    compact(self.run.writer, store, MaintenancePolicy(small_files=2))
            else:
                self.run.writer.rows.expire(2, 0.0)
        except DriverDied:
            self.deaths += 1
            self.restart()
        if self.chance.random() < 0.1:
            self.restart()

    def restart(self) -> None:
        self.run = LocalRun(self.home, self.definition)

    def recreate_topic(self) -> None:
        """Recreate the topic after the table has read all of the old one."""
        self.restart()
        self.run.take()
        for future in self.cluster.admin.delete_topics([self.topic]).values():
            future.result()
        self.cluster.create(self.topic, PARTITIONS)
        with pytest.raises(TableError, match="was recreated"):
            self.restart()
        self.run.writer.accept_topic()
        self.restart()

    def finish(self) -> None:
        self.restart()
        self.run.take()

    def expected(self) -> list[Any]:
        rows: list[tuple[bytes | None, Any]] = []
        last: dict[bytes, Any] = {}
        for _, key, value in self.records:
            if isinstance(value, bytes) or (key is None and self.definition.mode == "upsert"):
                continue
            rows.append((key, value))
            if key is not None:
                last[key] = value
        if self.definition.mode == "append":
            return sorted(map(canonical, rows))
        return sorted(canonical(row) for row in last.items() if row[1] is not None)

    def dead(self) -> int:
        return sum(
            isinstance(value, bytes) or (key is None and self.definition.mode == "upsert")
            for _, key, value in self.records
        )


def canonical(row: tuple[bytes | None, Any]) -> str:
    key, value = row
    return json.dumps([key and key.decode(), value], sort_keys=True)


def as_produced(row: dict[str, Any]) -> str:
    """Return the record of a row: its columns together with its rescued values."""
    value = {name: members(cell) for name, cell in row.items() if not name.startswith("_") and cell is not None}
    for path, rescued in json.loads(row["_rescued"] or "{}").items():
        *parents, name = [path] if path in ("not.allowed", "A") else path.split(".")
        target = value
        for parent in parents:
            target = target.setdefault(parent, {})
        target[name] = rescued
    return json.dumps([row["_key"], None if row["_deleted"] else whole_numbers(value)], sort_keys=True)


def members(value: Any) -> Any:
    """Remove the null members of a struct, which come from the schema."""
    return {name: member for name, member in value.items() if member is not None} if isinstance(value, dict) else value


def whole_numbers(value: Any) -> Any:
    """Convert integral floats to integers, because a widened column stores integers as floats."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: whole_numbers(member) for name, member in value.items()}
    return [whole_numbers(element) for element in value] if isinstance(value, list) else value


@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize("seed", range(1))
def test_a_table_equals_its_model(cluster: Cluster, tmp_path: Path, format_: str, mode: str, seed: int) -> None:
    world = World(cluster, home_in(tmp_path), random.Random(f"{seed} {format_} {mode}"), format_, mode)
    for number in range(16):
        world.write()
        world.step()
        if number == 11:
            world.recreate_topic()
    world.finish()
    assert sorted(map(as_produced, world.run.rows())) == world.expected()
    assert len(world.run.dead()) == world.dead()
    assert world.deaths
