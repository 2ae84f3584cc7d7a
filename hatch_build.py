"""Builds the compiled modules of the package where there is a C compiler, and leaves them out where there is none.

They do nothing that Python does not do as well, only faster; so a failure is told and never fatal. They keep to the
stable ABI of Python 3.11: one build serves every later version. `OTTLA_PURE=1` leaves them out on purpose.
"""

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = tuple(
    Path("src/ottla") / each
    for each in (
        "protocol/wire/_codec.c",
        "protocol/wire/_scan.c",
        "spark/connector/_columns.c",
        "spark/connector/_rows.c",
    )
)


class ScanBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Compiles each module beside its source, and has the wheel take it along."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        targets = [source.with_suffix(".abi3.so") for source in SOURCES]
        why = "OTTLA_PURE is set" if os.environ.get("OTTLA_PURE") else ""
        for source, target in zip(SOURCES, targets, strict=True):
            why = why or _compile(root, source, target)
        if why:
            for target in targets:
                (root / target).unlink(missing_ok=True)
            self.app.display_warning(f"ottla is built without its compiled part, and is slower for it: {why}")
            return
        build_data["artifacts"] += [f"/{target}" for target in targets]
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"cp311-abi3-{platform}"


def _compile(root: Path, source: Path, target: Path) -> str:
    """Compile with the compiler that Python itself was built with; says why if that cannot be done."""
    if os.name != "posix" or sys.implementation.name != "cpython":
        return f"there is no build for {sys.implementation.name} on {os.name}"
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    command = [
        *shlex.split(compiler),
        *("-O2", "-fPIC", "-shared", "-Wall", "-Wextra"),
        *(("-undefined", "dynamic_lookup") if sys.platform == "darwin" else ()),
        *shlex.split(os.environ.get("CFLAGS", "")),
        f"-I{sysconfig.get_path('include')}",
        "-Isrc/ottla/protocol/wire",
        str(source),
        *("-o", f"{target}.new"),
    ]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)  # noqa: S603
    except OSError as error:
        return f"{command[0]} cannot be run: {error}"
    if done.returncode != 0:
        return f"{command[0]} failed: {done.stderr.strip()[-400:]}"
    (root / f"{target}.new").replace(
        root / target
    )  # whoever runs from this tree meanwhile finds the old one or the new
    return ""
