"""A home for Spark in which Python's workers import the package that is installed.

Spark puts its Python part, a zip of sources, in front of all that its workers import. Each of the dozen processes that
plan and run a first query would compile a hundred modules of it, 0.7 s of a core each time; the package has bytecode.
"""

import os
import sys
from pathlib import Path
from typing import Final

import pyspark

_PARTS: Final = ("bin", "jars", "sbin")


def make_spark_home(folder: Path) -> Path:
    """The home that Spark is to be started with (SPARK_HOME), for workers on this machine. Links go to `folder`."""
    package = Path(pyspark.__file__).parent
    if os.environ.get("PYSPARK_PYTHON", sys.executable) != sys.executable:
        return package  # another Python may have no such package, and needs the zip
    folder.mkdir(parents=True, exist_ok=True)
    for part in _PARTS:
        link = folder / part
        link.unlink(missing_ok=True)
        link.symlink_to(package / part)
    return folder
