"""Go programs of the tests, built once and kept in the cache: modules come from the Go proxy, checked by `go.sum`."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from bench.harness.kafka_jars import cached, digest, unavailable

BUILD_TIMEOUT_S = 280
"""Nearly all the time that one test may take: the first build compiles every dependency, too."""


def program(module: Path, package: str) -> Path:
    """The executable of one of a module's packages."""
    sources = sorted([*module.glob("*/*.go"), module / "go.mod", module / "go.sum"])
    made = cached(
        f"go-{package}-{digest(sources)}", lambda into: build(module, f"./{package}", into / "program", "build")
    )
    return made / "program"


def build(module: Path, package: str, output: Path, *how: str) -> None:
    """Run `go build` or `go test -c`; where a module cannot be had, or Go is too old for it, skip the asking test."""
    command = ["go", *how, "-mod=readonly", "-o", str(output), package]
    done = subprocess.run(
        command,
        cwd=module,
        env={**os.environ, "GOWORK": "off"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        told = (done.stdout + done.stderr).strip()[-2000:]
        if "dial tcp" in told or "requires go >=" in told:
            unavailable(f"Go modules: {told}")
        pytest.fail(f"{module.name} does not compile: {told}", pytrace=False)


def module_folder(name: str, version: str) -> Path:
    """Where the go tool keeps the source of a module, fetched if need be."""
    done = subprocess.run(
        ["go", "mod", "download", "-json", f"{name}@{version}"],
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        unavailable(f"the Go module {name}: {done.stdout}{done.stderr}")
    return Path(json.loads(done.stdout)["Dir"])
