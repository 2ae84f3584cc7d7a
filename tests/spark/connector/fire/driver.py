"""The driver: runs two queries from their checkpoints, and restarts them when they fail, until the file `stop` exists.

python -m tests.spark.connector.fire.driver FOLDER SERVERS
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from bench.harness.spark_session import start_session
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.connector.fire.fiery import FieryDataSource
from tests.spark.connector.fire.traps import name_driver, trigger

INPUT = "fire-in"
OUTPUTS = {"stateless": "fire-rows", "stateful": "fire-groups"}
GROUP = 5
STOP = "stop"
BATCH_RECORDS = 150


def checkpoint(folder: Path, name: str) -> Path:
    return folder / "checkpoints" / name


def past_traps(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    trigger("rows come")
    yield from batches
    trigger("rows are gone")


def rows_of(spark: SparkSession, name: str, servers: str) -> DataFrame:
    """Return the rows that a query writes: every record, or each group of records once, by its state."""
    source = spark.readStream.format("ottla").option("kafka.bootstrap.servers", servers).option("subscribe", INPUT)
    rows = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(BATCH_RECORDS)).load()
    passed = rows.selectExpr("key", "value").mapInArrow(past_traps, "key binary, value binary")
    if name == "stateless":
        return passed
    groups = passed.selectExpr(f"cast(cast(cast(value as string) as bigint) div {GROUP} as string) value")
    return groups.dropDuplicates(["value"]).selectExpr("value key", "value")


def start(spark: SparkSession, name: str, folder: Path, servers: str) -> StreamingQuery:
    return (
        rows_of(spark, name, servers)
        .writeStream.format("fiery")
        .queryName(name)
        .option("kafka.bootstrap.servers", servers)
        .option("topic", OUTPUTS[name])
        .option("checkpointLocation", str(checkpoint(folder, name)))
        .start()
    )


def main(path: str, servers: str) -> None:
    folder = Path(path)
    name_driver(folder / "traps")
    options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    spark = start_session(folder / "spark", master="local[2,4]", java_options=options)
    spark.dataSource.register(FieryDataSource)
    queries = {name: start(spark, name, folder, servers) for name in OUTPUTS}
    print("started", flush=True)
    while not (folder / STOP).exists():
        for name, query in queries.items():
            if not query.isActive:
                print(f"{name} failed: {query.exception()}", flush=True)
                queries[name] = start(spark, name, folder, servers)
        time.sleep(0.1)
    for query in queries.values():
        try:
            query.stop()
        except PySparkException as error:
            print(f"error while stopping: {error}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
