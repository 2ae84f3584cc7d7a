"""Shortens the garbage collection between two tasks.

Spark's Python workers run a full collection after each task. The modules that a task needs have hundreds of thousands
of objects, so it takes longer than many tasks (50 ms of CPU). These objects live as long as the process, so the
collector need not visit them.
"""

import gc
import sys

_frozen_modules = 0


def freeze_modules() -> None:
    """In a Spark worker, exclude loaded modules from garbage collection; repeat it when more modules are loaded."""
    global _frozen_modules  # a process has one heap
    spec = sys.modules["__main__"].__spec__
    if spec is None or spec.name != "pyspark.daemon" or len(sys.modules) == _frozen_modules:
        return
    _frozen_modules = len(sys.modules)
    gc.collect()
    gc.freeze()
