"""Spark's Python workers import the installed package with its bytecode, and no more than they need."""

import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from ottla.spark.connector.spark_home import make_spark_home


def test_the_home_has_spark_without_its_zip_of_sources(tmp_path: Path) -> None:
    for _ in range(2):  # a second start finds the links of the first
        home = make_spark_home(tmp_path / "spark")
    package = Path(pyspark.__file__).parent
    assert (home / "jars").resolve() == package / "jars"
    assert (home / "bin" / "spark-submit").is_file()
    assert not (home / "python").exists()


def test_workers_of_another_python_keep_the_zip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/other/bin/python")
    assert make_spark_home(tmp_path / "spark") == Path(pyspark.__file__).parent


def test_a_process_that_plans_loads_neither_pandas_nor_the_sink() -> None:
    loaded = (
        "import sys, pyspark_ottla; names = ('pandas', 'ottla.spark.connector.spark_writers'); "
        "print([name for name in names if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


@pytest.mark.spark
def test_workers_import_the_installed_package(spark: SparkSession) -> None:
    paths = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.modules["pyspark"].__file__).collect()
    assert paths == [pyspark.__file__]
