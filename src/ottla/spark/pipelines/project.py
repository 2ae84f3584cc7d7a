"""A pipeline's project: a folder with a spec file, as for Spark's own `spark-pipelines`.

    spark-pipeline.yml     name, storage, libraries, configuration
    transformations/       the definitions: Python and SQL
    .ottla/                Ottla's files: the server's settings, catalog, logs and events

In addition to Spark's rules, `storage` may be a folder of the project, and the setting `ottla.spark` in `configuration`
says where Spark runs: `local[*]`, the address of a master, or that of a Connect server (`sc://host:port`).
"""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

SPEC_NAMES: Final = ("spark-pipeline.yml", "spark-pipeline.yaml")
SPARK_SETTING: Final = "ottla.spark"
DEFAULT_SPARK: Final = "local[*]"
_FIELDS: Final = ("name", "storage", "catalog", "database", "schema", "configuration", "libraries")


class ProjectError(Exception):
    """A project is invalid; the message says where and why."""


class Project(NamedTuple):
    """A pipeline's folder and the contents of its spec."""

    folder: Path
    spec: Path
    name: str
    storage: str
    catalog: str | None
    database: str | None
    configuration: Mapping[str, str]
    libraries: tuple[str, ...]
    spark: str

    @property
    def home(self) -> Path:
        """The folder of Ottla's own files."""
        return self.folder / ".ottla"

    @property
    def event_log(self) -> Path:
        return self.home / "events.jsonl"

    @property
    def shown_spark(self) -> str:
        """Where Spark runs, without the token that an address may contain."""
        return self.spark.partition("/;")[0]

    @property
    def is_remote(self) -> bool:
        """Whether Spark runs behind a Connect server that this project does not manage."""
        return self.spark.startswith("sc://")

    @property
    def is_local(self) -> bool:
        """Whether Spark runs in one process on this machine."""
        return self.spark.startswith("local")


def find_project(path: Path, *, spark: str | None = None) -> Project:
    """Return the project in a folder or its parents; raise ProjectError. `spark` overrides the setting."""
    start = path.resolve()
    for folder in (start, *start.parents):
        specs = [folder / name for name in SPEC_NAMES if (folder / name).is_file()]
        if len(specs) > 1:
            raise ProjectError(f"{folder} has both {' and '.join(SPEC_NAMES)}; remove one of them")
        if specs:
            return _read(specs[0], spark)
    raise ProjectError(
        f"there is no {SPEC_NAMES[0]} in {start} or its parent folders; create a project by `ottla pipeline init`"
    )


def _read(spec: Path, spark: str | None) -> Project:
    given = _load(spec)
    for field in given:
        if field not in _FIELDS:
            similar = difflib.get_close_matches(str(field), _FIELDS, n=1)
            hint = f"did you mean {similar[0]}?" if similar else f"the fields are {', '.join(_FIELDS)}"
            raise ProjectError(f"{spec}: there is no field {field!r}; {hint}")
    for field in ("name", "storage"):
        if not isinstance(given.get(field), str) or not given[field].strip():
            raise ProjectError(f"{spec}: {field} is missing or not text; add a line such as `{field}: orders`")
    configuration = _configuration(spec, given.get("configuration") or {})
    return Project(
        folder=spec.parent,
        spec=spec,
        name=given["name"],
        storage=_storage(spec.parent, given["storage"]),
        catalog=_text(spec, given, "catalog"),
        database=_text(spec, given, "database") or _text(spec, given, "schema"),
        configuration={name: value for name, value in configuration.items() if name != SPARK_SETTING},
        libraries=_libraries(spec, given.get("libraries")),
        spark=spark or configuration.get(SPARK_SETTING) or DEFAULT_SPARK,
    )


def _load(spec: Path) -> Mapping[str, Any]:
    try:
        given = yaml.safe_load(spec.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ProjectError(f"{spec} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(given, dict):
        raise ProjectError(f"{spec} has no fields; write lines such as `name: orders`")
    return given


def _text(spec: Path, given: Mapping[str, Any], field: str) -> str | None:
    value = given.get(field)
    if value is not None and not isinstance(value, str):
        raise ProjectError(f"{spec}: {field}: {value!r} is not text; put it in quotes")
    return value


def _configuration(spec: Path, given: Any) -> dict[str, str]:
    if not isinstance(given, dict):
        raise ProjectError(f"{spec}: configuration must have settings, such as `spark.sql.shuffle.partitions: 4`")
    settings = {}
    for name, value in given.items():
        if not isinstance(name, str) or isinstance(value, dict | list) or value is None:
            raise ProjectError(f"{spec}: configuration: the value of {name!r} must be text, a number or a boolean")
        settings[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return settings


def _storage(folder: Path, given: str) -> str:
    """Return the storage as a URL, as Spark requires it; a path is relative to the project."""
    return given if "://" in given or given.startswith("file:") else (folder / given).resolve().as_uri()


def _libraries(spec: Path, given: Any) -> tuple[str, ...]:
    """Return the patterns of the definitions: each is a file, or a folder with everything below it."""
    form = "libraries must be a list of `- glob:`, each with `include: transformations/**` below it"
    if not isinstance(given, list) or not given:
        raise ProjectError(f"{spec}: {form}")
    patterns = []
    for entry in given:
        include = (
            entry["glob"].get("include") if isinstance(entry, dict) and isinstance(entry.get("glob"), dict) else None
        )
        if not isinstance(include, str):
            raise ProjectError(f"{spec}: {form}")
        path = include.removesuffix("/**")
        if any(wildcard in path for wildcard in "*?["):
            raise ProjectError(f"{spec}: libraries: {include!r} must be a file, or a folder followed by /**")
        patterns.append(include + "/*" if include.endswith("/**") else include)
    return tuple(patterns)
