"""Builds the tests' Go programs once and caches them; modules come from the Go proxy, verified by `go.sum`."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from bench.harness.kafka_jars import cached_folder, digest, unavailable

BUILD_TIMEOUT_S = 280
"""Almost the time limit of a test, because the first build compiles every dependency."""


def program(module: Path, package: str) -> Path:
    """Return the executable of a package of a module."""
    sources = sorted([*module.glob("*/*.go"), module / "go.mod", module / "go.sum"])
    folder = cached_folder(
        f"go-{package}-{digest(sources)}", lambda folder: build(module, f"./{package}", folder / "program", "build")
    )
    return folder / "program"


def build(module: Path, package: str, output: Path, *command: str) -> None:
    """Run `go build` or `go test -c`; skip the test if a module is unavailable or Go is too old for it."""
    finished = subprocess.run(
        ["go", *command, "-mod=readonly", "-o", str(output), package],
        cwd=module,
        env={**os.environ, "GOWORK": "off"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if finished.returncode:
        output_text = (finished.stdout + finished.stderr).strip()[-2000:]
        if "dial tcp" in output_text or "requires go >=" in output_text:
            unavailable(f"Go modules: {output_text}")
        pytest.fail(f"{module.name} does not compile: {output_text}", pytrace=False)


def module_folder(name: str, version: str) -> Path:
    """Return the folder where the go tool keeps a module's source, after downloading it if necessary."""
    finished = subprocess.run(
        ["go", "mod", "download", "-json", f"{name}@{version}"],
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if finished.returncode:
        unavailable(f"the Go module {name}: {finished.stdout}{finished.stderr}")
    return Path(json.loads(finished.stdout)["Dir"])
