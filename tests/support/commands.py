"""Run the `ottla` command in a process, as a user does, and check its output and exit code."""

import os
import subprocess
import sys
from collections.abc import Mapping


def run_ottla(
    *arguments: str,
    server: str | None = None,
    typed: bytes = b"",
    environment: Mapping[str, str] | None = None,
    timeout: float = 60,
) -> "subprocess.CompletedProcess[str]":
    """Run a command and return its exit code and output; `typed` is its standard input."""
    variables = {**os.environ, **({} if server is None else {"OTTLA_BOOTSTRAP_SERVER": server}), **(environment or {})}
    finished = subprocess.run(
        [sys.executable, "-m", "ottla", *arguments],
        input=typed,
        capture_output=True,
        timeout=timeout,
        check=False,
        env=variables,
    )
    return subprocess.CompletedProcess(
        finished.args, finished.returncode, finished.stdout.decode(), finished.stderr.decode()
    )


def run_command(*arguments: str, server: str, typed: bytes = b"") -> str:
    """Run a command that must succeed, and return what it prints."""
    finished = run_ottla(*arguments, server=server, typed=typed)
    assert (finished.returncode, finished.stderr) == (0, ""), finished
    return finished.stdout


def run_failing_command(*arguments: str, server: str, typed: bytes = b"") -> str:
    """Run a command that must fail, and return its error message of one line."""
    finished = run_ottla(*arguments, server=server, typed=typed)
    assert finished.returncode == 1, finished
    assert finished.stderr.count("\n") == 1, finished.stderr
    return finished.stderr.rstrip("\n")
