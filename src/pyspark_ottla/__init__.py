"""Registers the data source `ottla`: Spark imports packages named `pyspark_*` and uses their `DefaultSource`.

So `format("ottla")` works in every session, and in declarative pipelines, without registration.
"""

from ottla.spark.connector.data_source import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]
