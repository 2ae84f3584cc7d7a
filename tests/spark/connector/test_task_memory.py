"""Spark workers exclude loaded modules from garbage collection; other processes do not."""

import gc
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from ottla.spark.connector import task_memory
from ottla.spark.connector.task_memory import freeze_modules


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process look like `python -m pyspark.daemon`."""
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec("pyspark.daemon", None))
    monkeypatch.setattr(task_memory, "_frozen_modules", 0)


def test_a_driver_freezes_nothing() -> None:
    freeze_modules()
    assert gc.get_freeze_count() == 0


def is_tracked(wanted: object) -> bool:
    """Whether the collector still visits an object: it does not list frozen objects."""
    return any(tracked is wanted for tracked in gc.get_objects())


@pytest.mark.usefixtures("worker")
def test_a_worker_freezes_modules_once(monkeypatch: pytest.MonkeyPatch) -> None:
    freeze_modules()
    assert gc.get_freeze_count() > 10_000
    assert not is_tracked(sys)
    gc.unfreeze()
    freeze_modules()
    assert gc.get_freeze_count() == 0, "nothing was loaded since"
    later = ModuleType("a_module_that_came_later")
    monkeypatch.setitem(sys.modules, later.__name__, later)
    assert is_tracked(later)
    freeze_modules()
    assert not is_tracked(later)
    assert not is_tracked(sys)
