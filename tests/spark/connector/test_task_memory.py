"""Workers of Spark leave alone what modules have made; every other process keeps what it has."""

import gc
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from ottla.spark.connector import task_memory
from ottla.spark.connector.task_memory import settle


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process of `python -m pyspark.daemon`."""
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec("pyspark.daemon", None))
    monkeypatch.setattr(task_memory, "_settled_modules", 0)


def test_a_driver_is_left_as_it_is() -> None:
    settle()
    assert gc.get_freeze_count() == 0


def is_looked_at(wanted: object) -> bool:
    """Whether the collector still goes through an object; what is frozen it does not list."""
    return any(each is wanted for each in gc.get_objects())


@pytest.mark.usefixtures("worker")
def test_a_worker_looks_at_modules_once(monkeypatch: pytest.MonkeyPatch) -> None:
    settle()
    assert gc.get_freeze_count() > 10_000
    assert not is_looked_at(sys)
    gc.unfreeze()
    settle()
    assert gc.get_freeze_count() == 0, "nothing was loaded since"
    later = ModuleType("a_module_that_came_later")
    monkeypatch.setitem(sys.modules, later.__name__, later)
    assert is_looked_at(later)
    settle()
    assert not is_looked_at(later)
    assert not is_looked_at(sys)
