"""A small fire, and tests of its checker."""

from pathlib import Path

import pytest

from tests.spark.connector.fire.checker import Row, check_rows, groups_of
from tests.spark.connector.fire.driver import INPUT
from tests.spark.connector.fire.fire import Fire, planned_records

SENT = [Row("a", "1"), Row("b", "2"), Row("a", "3")]


def test_missing_and_duplicate_rows_are_reported() -> None:
    assert check_rows(SENT, SENT[::-1]) == []
    assert check_rows(SENT, SENT[:2]) == ["1 rows missing, such as a=3"]
    assert check_rows(SENT, [*SENT, SENT[1]]) == ["1 rows too often, such as b=2"]


def test_groups_are_the_rows_of_the_stateful_query() -> None:
    assert groups_of(SENT, 2) == [Row("0", "0"), Row("1", "1")]


def test_the_checkpoint_says_how_many_records_are_planned(tmp_path: Path) -> None:
    assert planned_records(tmp_path) == 0
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    for batch, end in ((9, 4), (10, 7)):
        (offsets / str(batch)).write_text(f'v1\n{{}}\n{{"{INPUT}": {{"0": {end}, "1": 5}}}}')
    (offsets / ".11.tmp").touch()
    assert planned_records(tmp_path) == 12


@pytest.mark.spark
def test_every_row_is_written_once_under_fire(tmp_path: Path) -> None:
    outcome = Fire(tmp_path / "fire", seed=1, failures=12).run()
    assert outcome.problems == []
    assert sum(outcome.struck.values()) >= 10, outcome.report()
