"""CRC-32C from the package `crc32c`, which uses the hardware instruction if there is one and takes memoryviews.

The package looks up its own version when it is imported, which loads parsers for mail and archives: 1/15 of the import
time of a node. So this module loads only the package's compiled part.
"""

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Protocol


class Crc32c(Protocol):
    """Return the checksum of data that continues bytes with the checksum `crc`."""

    def __call__(self, data: bytes | bytearray | memoryview, crc: int = 0, /) -> int: ...


def _load() -> Crc32c:
    package = find_spec("crc32c")
    spec = package and PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if not spec or not spec.loader:
        # In another release of the package the compiled part has another name.
        from crc32c import crc32c

        return crc32c
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Crc32c = module.crc32c
    return function


crc32c = _load()
