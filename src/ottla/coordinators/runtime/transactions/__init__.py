"""The transaction coordinator at work: markers sent and written, checks before the first append."""
