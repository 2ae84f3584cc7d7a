"""CRC-32C, by the package of that name: hardware's instruction where there is one, and it takes memoryviews.

The package asks for its own version when it is imported, which loads parsers of mail and of archives: a fifteenth of
what all modules of a node take. So its compiled part is loaded alone.
"""

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Protocol


class Crc32c(Protocol):
    """The checksum of some bytes; of what follows bytes that have the checksum `crc`."""

    def __call__(self, data: bytes | bytearray | memoryview, crc: int = 0, /) -> int: ...


def _compiled() -> Crc32c:
    package = find_spec("crc32c")
    found = package and PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if not found or not found.loader:
        # Another release of it, whose parts have other names.
        from crc32c import crc32c

        return crc32c
    module = module_from_spec(found)
    found.loader.exec_module(module)
    function: Crc32c = module.crc32c
    return function


crc32c = _compiled()
