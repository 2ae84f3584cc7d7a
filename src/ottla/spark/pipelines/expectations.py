"""Expectations about the rows of a dataset, as decorators below those of `pyspark.pipelines`.

    @dp.table
    @expect("has a customer", "customer is not null")
    @expect_or_drop("is paid", "paid")
    @expect_or_dead_letter("has a price", "price > 0", topic="orders-rejected", servers="localhost:9092")
    def orders():
        return spark.readStream.table("bronze")

A condition is an SQL expression over the columns that the function returns, or a column. A row does not meet the
expectation if the condition is false or null. Such rows are counted, and then kept or dropped, or fail the run, or go
to dead letters. The innermost decorator applies first. The run's view and events show the counts, except for
materialized views, for which Spark reports none.

Dead letters go to a topic or to a table of the pipeline, as JSON with the names of the expectation and the dataset. A
separate flow writes them, so the function's source must be a stream. A table takes the dead letters of one expectation,
a topic those of any number.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from pyspark import pipelines as dp
from pyspark.pipelines.graph_element_registry import get_active_graph_element_registry
from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import array, coalesce, concat, count_if, lit, raise_error, struct, when
from pyspark.sql.functions import expr as parse

Query: TypeAlias = Callable[[], DataFrame]
METRIC: Final = "expectation"
_BOOTSTRAP: Final = "kafka.bootstrap.servers"


def expect(name: str, condition: str | Column) -> Callable[[Query], Query]:
    """Count the rows that do not meet the condition, and keep them."""
    return _expectation("warn", name, condition, lambda rows, _met: rows)


def expect_or_drop(name: str, condition: str | Column) -> Callable[[Query], Query]:
    """Count the rows that do not meet the condition, and drop them."""
    return _expectation("drop", name, condition, lambda rows, met: rows.filter(met))


def expect_or_fail(name: str, condition: str | Column) -> Callable[[Query], Query]:
    """Fail the run at a row that does not meet the condition; nothing of its batch is written."""

    def fail(rows: DataFrame, met: Column) -> DataFrame:
        message = concat(lit(f"expectation {name!r} is not met by the row "), parse("to_json(struct(*))"))
        return rows.filter(when(met, lit(True)).otherwise(raise_error(message).cast("boolean")))

    return _expectation("fail", name, condition, fail)


def expect_or_dead_letter(
    name: str,
    condition: str | Column,
    *,
    table: str | None = None,
    topic: str | None = None,
    servers: str | None = None,
    options: Mapping[str, str] | None = None,
) -> Callable[[Query], Query]:
    """Count the rows that do not meet the condition, and move them to a table of the pipeline or a topic."""
    if (table is None) == (topic is None):
        raise ValueError(f"expectation {name!r}: give either table or topic as the target of dead letters")
    if topic is not None and servers is None and _BOOTSTRAP not in (options or {}):
        raise ValueError(f"expectation {name!r}: topic {topic!r} requires servers, such as localhost:9092")

    def decorate(query: Query) -> Query:
        dataset = getattr(query, "__name__", "rows")

        def select_dead_letters() -> DataFrame:
            rows = query()
            return _dead_letters(rows.filter(~_met(condition)), name, dataset, as_records=topic is not None)

        target = table or f"{topic}_dead_letters".replace("-", "_").replace(".", "_")
        letters = dead_letters_of(get_active_graph_element_registry())
        if target not in letters.targets:
            letters.targets.add(target)
            if topic is None:
                dp.create_streaming_table(target)
            else:
                given = {_BOOTSTRAP: servers} if servers is not None else {}
                dp.create_sink(target, "ottla", {**given, **(options or {}), "topic": topic})
        words = "".join(letter if letter.isalnum() else "_" for letter in name)
        flow = f"{target}_{dataset}_{words}"
        letters.flows.add(flow)
        dp.append_flow(target=target, name=flow)(select_dead_letters)
        return _expectation("dead letter", name, condition, lambda rows, met: rows.filter(met))(query)

    return decorate


def _expectation(
    action: str, name: str, condition: str | Column, apply: Callable[[DataFrame, Column], DataFrame]
) -> Callable[[Query], Query]:
    if not name:
        raise ValueError('an expectation needs a name, such as "has a price"')

    def decorate(query: Query) -> Query:
        @functools.wraps(query)
        def checked() -> DataFrame:
            rows = query()
            met = _met(condition)
            counted = rows.observe(f"{METRIC}/{action}/{name}", count_if(~met).alias("unmet"))
            return apply(counted, met)

        return checked

    return decorate


def _met(condition: str | Column) -> Column:
    return coalesce(parse(condition) if isinstance(condition, str) else condition, lit(False))


def _dead_letters(rows: DataFrame, name: str, dataset: str, *, as_records: bool) -> DataFrame:
    row = parse("to_json(struct(*))")
    if not as_records:
        return rows.select(lit(name).alias("expectation"), lit(dataset).alias("dataset"), row.alias("row"))
    about = {"ottla.expectation": name, "ottla.dataset": dataset}
    headers = array(
        *(struct(lit(key).alias("key"), lit(value.encode()).alias("value")) for key, value in about.items())
    )
    return rows.select(row.alias("value"), headers.alias("headers"))


class DeadLetters:
    """The targets of dead letters in one pipeline, and the flows that write them."""

    def __init__(self) -> None:
        self.targets: set[str] = set()
        self.flows: set[str] = set()


def dead_letters_of(registry: Any) -> DeadLetters:
    """Return the dead letters of a pipeline. Its registry holds them, because it may also be Spark's own."""
    letters: DeadLetters = registry.__dict__.setdefault("_ottla_dead_letters", DeadLetters())
    return letters
