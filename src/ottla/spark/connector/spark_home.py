"""A SPARK_HOME whose Python workers import the installed package `pyspark`.

Spark puts a zip with its Python sources first on the path of its workers. Each of the dozen processes that plan and run
a first query would compile a hundred modules from it, which takes 0.7 s of CPU each. The installed package has
bytecode.
"""

import os
import sys
from pathlib import Path
from typing import Final

import pyspark

_PARTS: Final = ("bin", "jars", "sbin")


def make_spark_home(folder: Path) -> Path:
    """Create a SPARK_HOME of links in `folder`, for workers on this machine; return the path to start Spark with."""
    package = Path(pyspark.__file__).parent
    if os.environ.get("PYSPARK_PYTHON", sys.executable) != sys.executable:
        return package  # another Python may lack the package, and needs the zip
    folder.mkdir(parents=True, exist_ok=True)
    for part in _PARTS:
        link = folder / part
        link.unlink(missing_ok=True)
        link.symlink_to(package / part)
    return folder
