"""Partitions as a broker holds them: leaders and followers, waiting produces and fetches, fetch sessions."""
