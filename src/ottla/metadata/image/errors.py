"""Errors between records and images. No client sees them."""


class ReplayError(Exception):
    """A record does not fit the image that it is applied to: the log is corrupt, or breaks Kafka's rules."""


class UnwritableImage(Exception):
    """An image has content that records of its metadata.version cannot express."""
