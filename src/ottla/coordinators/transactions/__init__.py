"""The transaction coordinator's rules: producers, their epochs, and what becomes of their transactions."""
