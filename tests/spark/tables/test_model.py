"""A table equals a model of it, whatever records come and whatever dies at the worst moment, in every format."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.spark.tables.definition import Definition, TableHome
from ottla.spark.tables.failures import TableError
from ottla.spark.tables.maintenance import Upkeep, compact
from ottla.spark.tables.store import Store
from tests.spark.clusters import Cluster
from tests.spark.tables.local import LocalRun, define, home_in, produce

PARTITIONS = 2
BAD = (b"not json", b"[1]", b"\xff\xfe", b'{"a": NaN}')


class Died(Exception):
    """The driver, at a moment that the test has chosen."""


class Death:
    """Strikes at the n-th change to either table from now on: just before it, or just after."""

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
                raise Died
            real(*arguments)
            if self._countdown == 0:
                raise Died

        return call


class World:
    """A topic, its table, and what the table should hold."""

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
        """Partition, key and value, as they were produced."""
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
        """Something happens."""
        if self.chance.random() < 0.4:
            Death(
                [self.run.keeper.rows, self.run.keeper.dead_letters],
                self.chance.randrange(1, 4),
                after=self.chance.random() < 0.5,
            )
        try:
            dice = self.chance.random()
            if dice < 0.75:
                self.run.take(self.chance.choice([None, 1, 3, 10]))
            elif dice < 0.9:
                for store in (self.run.keeper.rows, self.run.keeper.dead_letters):
                    compact(self.run.keeper, store, Upkeep(small_files=2))
            else:
                self.run.keeper.rows.expire(2, 0.0)
        except Died:
            self.deaths += 1
            self.restart()
        if self.chance.random() < 0.1:
            self.restart()

    def restart(self) -> None:
        self.run = LocalRun(self.home, self.definition)

    def make_anew(self) -> None:
        """The topic goes, and another of its name comes; the table had all of the old one."""
        self.restart()
        self.run.take()
        for future in self.cluster.admin.delete_topics([self.topic]).values():
            future.result()
        self.cluster.create(self.topic, PARTITIONS)
        with pytest.raises(TableError, match="made anew"):
            self.restart()
        self.run.keeper.accept_topic()
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
    """A row as the record that it came from: columns and rescued values together."""
    value = {name: members(each) for name, each in row.items() if not name.startswith("_") and each is not None}
    for path, each in json.loads(row["_rescued"] or "{}").items():
        *parents, name = [path] if path in ("not.allowed", "A") else path.split(".")
        target = value
        for parent in parents:
            target = target.setdefault(parent, {})
        target[name] = each
    return json.dumps([row["_key"], None if row["_deleted"] else whole_numbers(value)], sort_keys=True)


def members(value: Any) -> Any:
    """Without the members that a struct has only because others have them."""
    return {name: each for name, each in value.items() if each is not None} if isinstance(value, dict) else value


def whole_numbers(value: Any) -> Any:
    """A column of fractions holds whole numbers, too; the model has only these two."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: whole_numbers(each) for name, each in value.items()}
    return [whole_numbers(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize("seed", range(1))
def test_a_table_equals_its_model(cluster: Cluster, tmp_path: Path, format_: str, mode: str, seed: int) -> None:
    world = World(cluster, home_in(tmp_path), random.Random(f"{seed} {format_} {mode}"), format_, mode)
    for number in range(16):
        world.write()
        world.step()
        if number == 11:
            world.make_anew()
    world.finish()
    assert sorted(map(as_produced, world.run.rows())) == world.expected()
    assert len(world.run.dead()) == world.dead()
    assert world.deaths
