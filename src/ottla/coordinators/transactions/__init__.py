"""The rules of the transaction coordinator: producers, their epochs and the outcome of their transactions.

Pure; imports `protocol`, `metadata.image` and `storage.state_machine`. `coordinators/runtime/transactions` runs it and
sends markers to the partitions.
"""
