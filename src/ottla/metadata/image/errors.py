"""What can go wrong between records and images; none of it is for a client."""


class ReplayError(Exception):
    """A record does not fit the image it is applied to: the log is broken, or not written by Kafka's rules."""


class UnwritableImage(Exception):
    """An image holds what records of the chosen metadata.version cannot say."""
