"""A project's definitions, told to Spark: Python files are run, SQL files are handed over.

Whatever is wrong in them is said with its file and line.
"""

import contextlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Set
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.pipelines.add_pipeline_analysis_context import add_pipeline_analysis_context
from pyspark.pipelines.block_session_mutations import block_session_mutations
from pyspark.pipelines.flow import Flow
from pyspark.pipelines.graph_element_registry import graph_element_registration_context
from pyspark.pipelines.output import Output, Table
from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
from pyspark.sql import DataFrame

from ottla.spark.pipelines.failures import plain
from ottla.spark.pipelines.project import Project, ProjectError
from ottla.spark.pipelines.topics import TopicSource, tables_read, topic_sources

_FILES: Final = ("parquet", "orc", "json", "csv", "text", "avro", "xml")


class Registry(SparkConnectGraphElementRegistry):
    """Spark's registry, which also notes which topics and tables each flow reads."""

    def __init__(self, spark: Any, graph: str, default_format: str, short: Callable[[str], str]) -> None:
        """`default_format` is that of tables which name none; `short` makes one of the names that a thing may have."""
        super().__init__(spark, graph)
        self._default_format = default_format
        self._short = short
        self._file_tables: set[str] = set()
        self._writers: dict[str, str] = {}
        self.sources: dict[str, list[TopicSource]] = {}
        self.has_other_sources = False
        self._tables: dict[str, set[str]] = {}
        self._targets: dict[str, str] = {}

    @property
    def inputs(self) -> dict[str, set[str]]:
        """The flows that fill the tables which each flow reads."""
        fillers: dict[str, set[str]] = {}
        for flow, target in self._targets.items():
            fillers.setdefault(target, set()).add(flow)
        return {
            flow: {each for table in tables for each in fillers.get(table, ())} for flow, tables in self._tables.items()
        }

    def with_readers(self, flows: Set[str]) -> set[str]:
        """Some flows, and all that read what they write, near and far."""
        found, inputs = set(flows), self.inputs
        while more := {flow for flow, given in inputs.items() if flow not in found and given & found}:
            found |= more
        return found

    def register_output(self, output: Output) -> None:
        if isinstance(output, Table) and (output.format or self._default_format).lower() in _FILES:
            self._file_tables.add(output.name)
        super().register_output(output)

    def register_flow(self, flow: Flow) -> None:
        other = self._writers.setdefault(flow.target, flow.name)
        if other != flow.name and flow.target in self._file_tables:
            # Each stream counts its batches in the table's own log: Spark takes those of the second for done.
            raise ProjectError(
                f"flows {other} and {flow.name} write to table {flow.target}, whose files take one stream: "
                "the rows of the other would be lost. Give each a table, or union them in one"
            )
        made: list[Any] = []

        def query() -> DataFrame:
            rows = flow.func()
            made.append(rows)
            return rows

        super().register_flow(replace(flow, func=query))
        plan = made[-1]._plan.plan(self._client)
        self.sources[flow.name], others = topic_sources(plan)
        name = self._short(flow.name)
        self._tables[name] = {self._short(table) for table in tables_read(plan)}
        self._targets[name] = self._short(flow.target)
        self.has_other_sources = self.has_other_sources or others


def register(project: Project, spark: Any, graph: str, short: Callable[[str], str]) -> Registry:
    """Tell Spark of all definitions; raises ProjectError."""
    registry = Registry(spark, graph, project.configuration.get("spark.sql.sources.default", "parquet"), short)
    files = _files(project)
    with _inside(project.folder), graph_element_registration_context(registry):
        for file in files:
            try:
                if file.suffix == ".py":
                    _run(file, spark, graph)
                else:
                    registry.register_sql(file.read_text(), file.relative_to(project.folder))
            except ProjectError as error:
                raise ProjectError(f"{_place(file, error)}: {error}") from error
            except PySparkException as error:
                raise ProjectError(f"{_place(file, error)}: {plain(str(error))}") from error
            except Exception as error:
                # Whatever a definition raises is its author's to know; a bug of ours has its traceback as the cause.
                said = error.msg if isinstance(error, SyntaxError) else f"{type(error).__name__}: {error}"
                raise ProjectError(f"{_place(file, error)}: {said}") from error
    return registry


def _files(project: Project) -> list[Path]:
    found: list[Path] = []
    for pattern in project.libraries:
        matching = sorted(path for path in project.folder.glob(pattern) if _is_definition(path))
        if not matching:
            raise ProjectError(f"{project.spec}: libraries: nothing matches {pattern!r}")
        found += [path for path in matching if path not in found]
    for file in found:
        if file.suffix not in (".py", ".sql"):
            raise ProjectError(f"{file}: definitions are .py and .sql files")
    return found


def _is_definition(path: Path) -> bool:
    hidden = any(part.startswith(".") for part in path.parts[-1:])
    return path.is_file() and "__pycache__" not in path.parts and not hidden


def _run(file: Path, spark: Any, graph: str) -> None:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None, "it ends in .py"
    assert spec.loader is not None, "a file has a loader"
    module = importlib.util.module_from_spec(spec)
    module.__dict__["spark"] = spark
    with add_pipeline_analysis_context(spark=spark, dataflow_graph_id=graph, flow_name=None), block_session_mutations():
        spec.loader.exec_module(module)


def _place(file: Path, error: BaseException) -> str:
    """The file, and the last line in it that led to the error."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == file]
    if isinstance(error, SyntaxError) and error.filename == str(file):
        lines.append(error.lineno)
    return f"{file.name}, line {lines[-1]}" if lines else file.name


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """Definitions run in their project's folder, and may import what lies there."""
    before = Path.cwd()
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
        sys.path.remove(str(folder))
