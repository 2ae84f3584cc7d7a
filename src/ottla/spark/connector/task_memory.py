"""Keeps what Spark does between two tasks short.

Spark's Python workers look for cycles among all objects after each task. With the modules that a task needs these are
hundreds of thousands, which takes longer than many a task (50 ms of CPU). What belongs to modules stays for as long as
the process does: it need not be looked at again.
"""

import gc
import sys

_settled_modules = 0


def settle() -> None:
    """In a worker of Spark's, leave alone what modules have made; again, when there are more modules than before."""
    global _settled_modules  # a process has one heap
    spec = sys.modules["__main__"].__spec__
    if spec is None or spec.name != "pyspark.daemon" or len(sys.modules) == _settled_modules:
        return
    _settled_modules = len(sys.modules)
    gc.collect()
    gc.freeze()
