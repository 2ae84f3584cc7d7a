"""`ottla pipeline` where no Spark runs; what it does on Spark is in tests/spark/pipelines."""

import json
from pathlib import Path

from tests.support.commands import run_command, run_failing_command, run_ottla

SERVER = "localhost:9092"


def test_a_project_is_created_and_inspected(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    out = run_command("pipeline", "init", str(folder), "--topic", "sales", server=SERVER)
    assert out.splitlines()[-1] == f"`ottla pipeline run {folder}` reads topic sales of localhost:9092"
    assert '"subscribe", "sales"' in (folder / "transformations" / "orders.py").read_text()
    assert run_command("pipeline", "status", str(folder), server=SERVER).splitlines() == [
        f"Pipeline shop in {folder}, on local[*]",
        "Spark is not running; the next run starts it.",
        "The pipeline has not run yet.",
    ]
    status = json.loads(run_command("pipeline", "status", str(folder), "--json", server=SERVER))
    assert status == {"pipeline": "shop", "spark": "local[*]", "server": None, "last run": None}
    assert run_command("pipeline", "stop", str(folder), server=SERVER) == "Spark was not running.\n"
    assert "is not an empty folder" in run_failing_command("pipeline", "init", str(folder), server=SERVER)


def test_a_token_in_an_address_is_not_shown(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    run_command("pipeline", "init", str(folder), server=SERVER)
    spec = folder / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("local[*]", "sc://far:15002/;token=secret"))
    out = run_command("pipeline", "status", str(folder), server=SERVER)
    assert "on sc://far:15002\n" in out
    assert "secret" not in out


def test_invalid_runs_are_rejected(tmp_path: Path) -> None:
    assert "create a project by `ottla pipeline init`" in run_failing_command(
        "pipeline", "run", str(tmp_path), server=SERVER
    )
    run_command("pipeline", "init", str(tmp_path / "shop"), server=SERVER)
    both = run_ottla("pipeline", "run", str(tmp_path / "shop"), "--full-refresh-all", "--refresh", "totals")
    assert (both.returncode, "remove --refresh and --full-refresh" in both.stderr) == (2, True)
    never = run_ottla("pipeline", "run", str(tmp_path / "shop"), "--every", "soon")
    assert (never.returncode, "'soon' is not a duration such as 30s, 5m or 1h" in never.stderr) == (2, True)


def test_without_spark_the_package_to_install_is_named(tmp_path: Path) -> None:
    run_command("pipeline", "init", str(tmp_path / "shop"), server=SERVER)
    absent = tmp_path / "absent" / "pyspark"
    absent.mkdir(parents=True)
    (absent / "__init__.py").write_text("raise ModuleNotFoundError('gone', name='pyspark')\n")
    environment = {"PYTHONPATH": str(absent.parent)}
    for action in ("run", "status", "stop"):
        done = run_ottla("pipeline", action, str(tmp_path / "shop"), environment=environment)
        assert done.returncode == 1
        assert (
            done.stderr
            == "ottla pipeline: pipelines need Spark (pyspark is not installed); run: pip install 'ottla[spark]'\n"
        )
