"""The runtime of the transaction coordinator: markers, and verification before the first append of a transaction."""
