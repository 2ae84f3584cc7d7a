"""Records of the metadata log, one batch after the other, as partitions receive them."""

from ottla.metadata.image.loader import MetadataLoader
from ottla.replication.partitions import Partitions


class Applied:
    """Applies records to partitions, as a broker does with what the controller has decided."""

    def __init__(self, partitions: Partitions) -> None:
        self.partitions = partitions
        self._loader = MetadataLoader()
        self._offset = 0

    def apply(self, *records: object) -> None:
        last = self._offset + len(records) - 1
        self._loader.load(records, base_offset=self._offset, last_offset=last, epoch=1, timestamp=1)
        self._offset = last + 1
        update = self._loader.publish()
        assert update is not None
        self.partitions.apply(update.changes)
