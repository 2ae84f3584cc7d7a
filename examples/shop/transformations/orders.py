"""Orders: all records, valid orders, malformed records, and an alert for each expensive order."""

import contextlib
import os
import signal
from pathlib import Path

import pandas as pd
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, pandas_udf, struct, to_json

from ottla.spark.pipelines import expect, expect_or_dead_letter

spark = SparkSession.active()
SERVERS = os.environ["BOOTSTRAP_SERVERS"]
TRAP = os.environ.get("KILL_A_TASK", "")
EXPENSIVE_PRICE = 950


@dp.table(comment="all records; values that are not orders are in the column `bad`")
def bronze() -> DataFrame:
    return (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", SERVERS)
        .option("kafka.group.id", "shop")
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("value.format", "json")
        .option("value.schema", "id long, customer string, price double")
        .load()
        .select("partition", "offset", "timestamp", "value", "bad")
    )


@pandas_udf("long")
def past_the_trap(ids: pd.Series) -> pd.Series:
    """Return the ids unchanged. The first task that finds the trap kills its process, and Spark retries it."""
    with contextlib.suppress(FileNotFoundError):
        if TRAP:
            Path(TRAP).unlink()
            os.kill(os.getpid(), signal.SIGKILL)
    return ids


@dp.table(comment="valid orders with a price")
@expect("has a customer", "customer is not null")
@expect_or_dead_letter("has a price", "price > 0", table="dead_letters")
def parsed() -> DataFrame:
    orders = spark.readStream.table("bronze").where("bad is null").select("value.*", "partition", "offset")
    return orders.select(past_the_trap("id").alias("id"), "customer", "price", "partition", "offset")


@dp.table(comment="records that are not orders, with their errors")
def malformed() -> DataFrame:
    return spark.readStream.table("bronze").where("bad is not null").select("partition", "offset", "bad.*")


dp.create_sink("alerts", "ottla", {"kafka.bootstrap.servers": SERVERS, "topic": "alerts"})


@dp.append_flow(target="alerts", name="expensive_orders")
def expensive_orders() -> DataFrame:
    expensive = spark.readStream.table("parsed").where(col("price") > EXPENSIVE_PRICE)
    return expensive.select(col("customer").alias("key"), to_json(struct("id", "customer", "price")).alias("value"))
