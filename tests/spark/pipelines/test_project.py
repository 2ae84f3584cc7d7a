"""A project's spec is read, and errors in it are reported."""

from pathlib import Path

import pytest

from ottla.spark.pipelines.project import ProjectError, find_project
from ottla.spark.pipelines.server import server_settings
from ottla.spark.pipelines.template import make_project

GOOD = "name: shop\nstorage: checkpoints\nlibraries:\n  - glob:\n      include: transformations/**\n"


def write(folder: Path, text: str) -> Path:
    (folder / "spark-pipeline.yml").write_text(text)
    return folder


def test_a_project_is_found_from_any_of_its_folders(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    below = tmp_path / "transformations" / "deep"
    below.mkdir(parents=True)
    project = find_project(below)
    assert (project.folder, project.name, project.libraries) == (tmp_path, "shop", ("transformations/**/*",))
    assert project.storage == (tmp_path / "checkpoints").as_uri()
    assert (project.spark, project.is_local, project.is_remote) == ("local[*]", True, False)


def test_a_setting_says_where_spark_runs_and_the_command_overrides_it(tmp_path: Path) -> None:
    write(tmp_path, GOOD + "configuration:\n  ottla.spark: spark://cluster:7077\n  spark.sql.ansi.enabled: false\n")
    project = find_project(tmp_path)
    assert (project.spark, project.is_local) == ("spark://cluster:7077", False)
    assert project.configuration == {"spark.sql.ansi.enabled": "false"}
    assert find_project(tmp_path, spark="sc://other:15002").is_remote
    settings = server_settings(project)
    assert settings["spark.master"] == "spark://cluster:7077"
    assert "spark.driver.host" not in settings, "a cluster must find the driver"
    assert settings["spark.sql.ansi.enabled"] == "false"


def test_settings_of_the_project_override_those_of_ottla(tmp_path: Path) -> None:
    options = "configuration:\n  spark.sql.shuffle.partitions: 7\n  spark.driver.extraJavaOptions: -Dx=y\n"
    settings = server_settings(find_project(write(tmp_path, GOOD + options)))
    assert settings["spark.sql.shuffle.partitions"] == "7"
    assert settings["spark.driver.extraJavaOptions"].startswith("-Dx=y ")
    assert settings["spark.sql.catalogImplementation"] == "hive"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: [", "is not YAML"),
        ("just words", "has no fields; write lines such as"),
        ("storage: x\n", "name is missing or not text"),
        ("name: shop\n", "storage is missing or not text"),
        (GOOD + "libaries: []\n", "there is no field 'libaries'; did you mean libraries?"),
        ("name: shop\nstorage: x\n", "libraries must be a list"),
        (GOOD.replace("transformations/**", "a/**/*.py"), "'a/**/*.py' must be a file, or a folder followed by /**"),
        (GOOD + "configuration: 3\n", "configuration must have settings"),
        (GOOD + "configuration:\n  a: [1]\n", "the value of 'a' must be text, a number or a boolean"),
    ],
)
def test_an_error_in_a_spec_is_reported(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ProjectError) as caught:
        find_project(write(tmp_path, text))
    assert message in str(caught.value)
    assert "spark-pipeline.yml" in str(caught.value)


def test_the_error_without_a_project_says_how_to_create_one(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match="create a project by `ottla pipeline init`"):
        find_project(tmp_path)
    write(tmp_path, GOOD)
    (tmp_path / "spark-pipeline.yaml").write_text(GOOD)
    with pytest.raises(ProjectError, match="remove one of them"):
        find_project(tmp_path)


def test_a_new_project_is_valid_and_overwrites_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    files = make_project(folder, name="shop", topic="orders", servers="localhost:9092")
    assert all(file.is_file() for file in files)
    assert find_project(folder).name == "shop"
    compile((folder / "transformations" / "orders.py").read_text(), "orders.py", "exec")
    with pytest.raises(ProjectError, match="is not an empty folder"):
        make_project(folder, name="shop", topic="orders", servers="localhost:9092")
    with pytest.raises(ProjectError, match="is not a valid topic name"):
        make_project(tmp_path / "other", name="other", topic='"', servers="localhost:9092")
