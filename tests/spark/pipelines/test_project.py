"""A project's spec: what it says, and what is said when it is not in order."""

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
    found = find_project(below)
    assert (found.folder, found.name, found.libraries) == (tmp_path, "shop", ("transformations/**/*",))
    assert found.storage == (tmp_path / "checkpoints").as_uri()
    assert (found.spark, found.is_local, found.is_remote) == ("local[*]", True, False)


def test_one_setting_says_where_spark_runs_and_the_command_goes_before_it(tmp_path: Path) -> None:
    write(tmp_path, GOOD + "configuration:\n  ottla.spark: spark://cluster:7077\n  spark.sql.ansi.enabled: false\n")
    found = find_project(tmp_path)
    assert (found.spark, found.is_local) == ("spark://cluster:7077", False)
    assert found.configuration == {"spark.sql.ansi.enabled": "false"}
    assert find_project(tmp_path, spark="sc://other:15002").is_remote
    settings = server_settings(found)
    assert settings["spark.master"] == "spark://cluster:7077"
    assert "spark.driver.host" not in settings, "a cluster must find the driver"
    assert settings["spark.sql.ansi.enabled"] == "false"


def test_settings_of_the_project_go_before_those_of_ottla(tmp_path: Path) -> None:
    options = "configuration:\n  spark.sql.shuffle.partitions: 7\n  spark.driver.extraJavaOptions: -Dx=y\n"
    settings = server_settings(find_project(write(tmp_path, GOOD + options)))
    assert settings["spark.sql.shuffle.partitions"] == "7"
    assert settings["spark.driver.extraJavaOptions"].startswith("-Dx=y ")
    assert settings["spark.sql.catalogImplementation"] == "hive"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: [", "is not YAML"),
        ("just words", "is no list of fields"),
        ("storage: x\n", "name is missing"),
        ("name: shop\n", "storage is missing"),
        (GOOD + "libaries: []\n", "there is no field 'libaries'; libraries is one"),
        ("name: shop\nstorage: x\n", "libraries is a list"),
        (GOOD.replace("transformations/**", "a/**/*.py"), "'a/**/*.py' is neither a file nor a folder"),
        (GOOD + "configuration: 3\n", "configuration is no list of settings"),
        (GOOD + "configuration:\n  a: [1]\n", "'a' has no plain value"),
    ],
)
def test_what_is_wrong_with_a_spec_is_said(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ProjectError) as caught:
        find_project(write(tmp_path, text))
    assert said in str(caught.value)
    assert "spark-pipeline.yml" in str(caught.value)


def test_a_folder_without_a_project_is_told_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match="`ottla pipeline init` makes a project"):
        find_project(tmp_path)
    write(tmp_path, GOOD)
    (tmp_path / "spark-pipeline.yaml").write_text(GOOD)
    with pytest.raises(ProjectError, match="one of them must go"):
        find_project(tmp_path)


def test_a_new_project_is_in_order_and_overwrites_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    files = make_project(folder, name="shop", topic="orders", servers="localhost:9092")
    assert all(file.is_file() for file in files)
    assert find_project(folder).name == "shop"
    compile((folder / "transformations" / "orders.py").read_text(), "orders.py", "exec")
    with pytest.raises(ProjectError, match="not empty"):
        make_project(folder, name="shop", topic="orders", servers="localhost:9092")
    with pytest.raises(ProjectError, match="is no name of a topic"):
        make_project(tmp_path / "other", name="other", topic='"', servers="localhost:9092")
