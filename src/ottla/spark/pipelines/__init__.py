"""Declarative pipelines on Spark: projects, their Spark server, runs, and the decorators for definitions.

from ottla.spark.pipelines import expect, expect_or_dead_letter, expect_or_drop, expect_or_fail
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.spark.pipelines.expectations import expect, expect_or_dead_letter, expect_or_drop, expect_or_fail

__all__ = ["expect", "expect_or_dead_letter", "expect_or_drop", "expect_or_fail"]


def __getattr__(name: str) -> Any:
    # Lazy, because the command line must be able to import this package without Spark.
    if name in __all__:
        from ottla.spark.pipelines import expectations

        return getattr(expectations, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
