"""Declarative pipelines on Spark: projects, their warm server, runs; and the decorators that a definition uses.

from ottla.spark.pipelines import expect, expect_or_dead_letter, expect_or_drop, expect_or_fail
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.spark.pipelines.expectations import expect, expect_or_dead_letter, expect_or_drop, expect_or_fail

__all__ = ["expect", "expect_or_dead_letter", "expect_or_drop", "expect_or_fail"]


def __getattr__(name: str) -> Any:
    # Spark is loaded by those who define something, and not by a command line that says how to install it.
    if name in __all__:
        from ottla.spark.pipelines import expectations

        return getattr(expectations, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
