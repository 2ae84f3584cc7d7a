"""Unit tests: the folders mirror `src/ottla`."""
