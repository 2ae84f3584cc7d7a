"""What Spark finds by itself: modules whose names begin with `pyspark_`, and in them a `DefaultSource`.

So `format("ottla")` works in every session, and in declarative pipelines, without a word of registration.
"""

from ottla.spark.connector.data_source import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]
