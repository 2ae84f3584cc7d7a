"""The template of a new project: a short pipeline that runs unchanged."""

from pathlib import Path
from typing import Final

from ottla.spark.pipelines.project import SPEC_NAMES, ProjectError

_SPEC: Final = """# A project of Spark Declarative Pipelines. `ottla pipeline run` updates all its datasets.
name: {name}
storage: checkpoints
libraries:
  - glob:
      include: transformations/**
configuration:
  # Where Spark runs: on this machine, on a cluster (spark://host:7077, yarn, k8s://...), or behind a Connect server
  # (sc://host:15002). Nothing else has to be changed.
  ottla.spark: local[*]
"""

_ORDERS: Final = '''"""Orders: all records, valid orders with a price, and an alert for each expensive order."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json, struct, to_json

from ottla.spark.pipelines import expect, expect_or_dead_letter

spark = SparkSession.active()
SERVERS = os.environ.get("BOOTSTRAP_SERVERS", "{servers}")


@dp.table(comment="all records, unchanged")
def bronze() -> DataFrame:
    return (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", SERVERS)
        .option("kafka.group.id", "{name}")
        .option("subscribe", "{topic}")
        .option("startingOffsets", "earliest")
        .load()
        .select("partition", "offset", "timestamp", col("value").cast("string").alias("value"))
    )


@dp.table(comment="valid orders with a price")
@expect("has a customer", "customer is not null")
@expect_or_dead_letter("is an order with a price", "price > 0", table="rejected")
def orders() -> DataFrame:
    parsed = from_json(col("value"), "id long, customer string, price double")
    return spark.readStream.table("bronze").select("offset", "partition", "value", parsed.alias("order")).select(
        "order.*", "partition", "offset", "value"
    )


dp.create_sink("alerts", "ottla", {{"kafka.bootstrap.servers": SERVERS, "topic": "{topic}-alerts"}})


@dp.append_flow(target="alerts", name="expensive_orders")
def expensive_orders() -> DataFrame:
    expensive = spark.readStream.table("orders").where("price > 900")
    return expensive.select(col("customer").alias("key"), to_json(struct("id", "customer", "price")).alias("value"))
'''

_TOTALS: Final = """CREATE MATERIALIZED VIEW totals AS
SELECT customer, count(*) AS orders, round(sum(price), 2) AS spent
FROM orders
GROUP BY customer
"""

_IGNORED: Final = ".ottla/\ncheckpoints/\n__pycache__/\n"


def make_project(folder: Path, *, name: str, topic: str, servers: str) -> list[Path]:
    """Write a project to a new or empty folder and return its files; raise ProjectError."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ProjectError(f"{folder} already exists and is not an empty folder; choose another one")
    if not topic or any(not (letter.isalnum() or letter in "._-") for letter in topic):
        raise ProjectError(f"{topic!r} is not a valid topic name; use letters, digits, '.', '_' and '-'")
    filled = {"name": name, "topic": topic, "servers": servers}
    contents = {
        SPEC_NAMES[0]: _SPEC.format(**filled),
        "transformations/orders.py": _ORDERS.format(**filled),
        "transformations/totals.sql": _TOTALS,
        ".gitignore": _IGNORED,
    }
    for path, text in contents.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return [folder / path for path in contents]
