"""Orders: as they came, those that are sound, those that are not, and an alert for each that is dear."""

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
DEAR = 950


@dp.table(comment="every record, as it came: a value that is no order is in the column `bad`")
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
    """What it is given. The first task that finds the trap is killed with its process; Spark tries it again."""
    with contextlib.suppress(FileNotFoundError):
        if TRAP:
            Path(TRAP).unlink()
            os.kill(os.getpid(), signal.SIGKILL)
    return ids


@dp.table(comment="orders that can be read and have a price")
@expect("has a customer", "customer is not null")
@expect_or_dead_letter("has a price", "price > 0", table="dead_letters")
def parsed() -> DataFrame:
    orders = spark.readStream.table("bronze").where("bad is null").select("value.*", "partition", "offset")
    return orders.select(past_the_trap("id").alias("id"), "customer", "price", "partition", "offset")


@dp.table(comment="records that are no orders, with what is wrong")
def unreadable() -> DataFrame:
    return spark.readStream.table("bronze").where("bad is not null").select("partition", "offset", "bad.*")


dp.create_sink("alerts", "ottla", {"kafka.bootstrap.servers": SERVERS, "topic": "alerts"})


@dp.append_flow(target="alerts", name="dear_orders")
def dear_orders() -> DataFrame:
    dear = spark.readStream.table("parsed").where(col("price") > DEAR)
    return dear.select(col("customer").alias("key"), to_json(struct("id", "customer", "price")).alias("value"))
