"""A local Spark session with Spark's own Kafka connector."""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from bench.harness.connector_jars import connector_jars
from bench.harness.kafka_jars import java
from ottla.spark.connector.spark_home import make_spark_home


def start_session(home: Path, *, master: str, java_options: str = "") -> SparkSession:
    """Start a session that writes only below `home`. The caller stops it."""
    os.environ["JAVA_HOME"] = str(java().parents[1])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_HOME"] = str(make_spark_home(home / "home"))
    settings = {
        "spark.jars": connector_jars(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.local.dir": str(home / "local"),
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{java_options} -Dderby.system.home={home}".strip(),
    }
    builder = SparkSession.builder.master(master).appName("ottla")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session
