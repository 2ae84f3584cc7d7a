"""Only the extra `ottla[spark]` needs Spark or Arrow."""

import subprocess
import sys


def loaded_by(statement: str) -> set[str]:
    """Return the packages that a new interpreter has loaded after a statement."""
    code = f"{statement}; import sys; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    return set(done.stdout.split())


def test_a_node_needs_neither_spark_nor_arrow() -> None:
    heavy = {"numpy", "pandas", "pyarrow", "pyspark", "py4j"}
    assert not heavy & loaded_by("import ottla, ottla.cli.main, ottla.node.node, ottla.client.admin")


def test_spark_finds_the_source_by_its_name() -> None:
    packages = loaded_by("from pyspark_ottla import DefaultSource; assert DefaultSource.name() == 'ottla'")
    assert {"pyspark", "pyarrow"} <= packages
