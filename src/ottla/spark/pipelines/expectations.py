"""What is expected of the rows of a dataset, as decorators below those of `pyspark.pipelines`.

    @dp.table
    @expect("has a customer", "customer is not null")
    @expect_or_drop("is paid", "paid")
    @expect_or_dead_letter("has a price", "price > 0", topic="orders-rejected", servers="localhost:9092")
    def orders():
        return spark.readStream.table("bronze")

A condition is SQL over the columns of what the function returns, or a column. A row for which it is false or null
does not meet the expectation: it is counted, and then kept, dropped, the end of the run, or put aside. The innermost is
looked at first. Counts are seen in the run's view and events; Spark has none for materialized views.

Rows that are put aside go to a topic, or to a table of the pipeline: as JSON, with the expectation and the dataset
they were for. A flow of its own does that, so the function's source must be a stream. A table takes the rows of one
expectation, a topic those of any number.
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
    """Rows that do not meet it are counted, and stay."""
    return _expectation("warn", name, condition, lambda rows, _met: rows)


def expect_or_drop(name: str, condition: str | Column) -> Callable[[Query], Query]:
    """Rows that do not meet it are counted, and left out."""
    return _expectation("drop", name, condition, lambda rows, met: rows.filter(met))


def expect_or_fail(name: str, condition: str | Column) -> Callable[[Query], Query]:
    """A row that does not meet it ends the run; nothing of its batch is kept."""

    def fail(rows: DataFrame, met: Column) -> DataFrame:
        said = concat(lit(f"expectation {name!r} is not met by the row "), parse("to_json(struct(*))"))
        return rows.filter(when(met, lit(True)).otherwise(raise_error(said).cast("boolean")))

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
    """Rows that do not meet it are counted, and put aside into a table of the pipeline or a topic."""
    if (table is None) == (topic is None):
        raise ValueError(f"expectation {name!r}: either table or topic says where rows are put aside")
    if topic is not None and servers is None and _BOOTSTRAP not in (options or {}):
        raise ValueError(f"expectation {name!r}: servers says where topic {topic!r} is, such as localhost:9092")

    def decorate(query: Query) -> Query:
        dataset = getattr(query, "__name__", "rows")

        def put_aside() -> DataFrame:
            rows = query()
            return _dead_letters(rows.filter(~_met(condition)), name, dataset, as_records=topic is not None)

        target = table or f"{topic}_dead_letters".replace("-", "_").replace(".", "_")
        notes = notes_of(get_active_graph_element_registry())
        if target not in notes.targets:
            notes.targets.add(target)
            if topic is None:
                dp.create_streaming_table(target)
            else:
                given = {_BOOTSTRAP: servers} if servers is not None else {}
                dp.create_sink(target, "ottla", {**given, **(options or {}), "topic": topic})
        words = "".join(letter if letter.isalnum() else "_" for letter in name)
        flow = f"{target}_{dataset}_{words}"
        notes.dead_letter_flows.add(flow)
        dp.append_flow(target=target, name=flow)(put_aside)
        return _expectation("dead letter", name, condition, lambda rows, met: rows.filter(met))(query)

    return decorate


def _expectation(
    action: str, name: str, condition: str | Column, apply: Callable[[DataFrame, Column], DataFrame]
) -> Callable[[Query], Query]:
    if not name:
        raise ValueError(f'an expectation has a name, such as "has a price"; {name!r} is none')

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


class Notes:
    """What the definitions of one pipeline have said of dead letters so far."""

    def __init__(self) -> None:
        self.targets: set[str] = set()
        self.dead_letter_flows: set[str] = set()


def notes_of(registry: Any) -> Notes:
    """The notes of a pipeline: they live with its registry, be it Spark's own."""
    notes: Notes = registry.__dict__.setdefault("_ottla_notes", Notes())
    return notes
