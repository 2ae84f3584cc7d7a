"""The log of one partition in the file format of Apache Kafka 4.3.1.

Segments, indexes, producer state, leader epochs, validation, recovery, truncation and retention. Imports
`storage.disk`, `storage.log_environment`, `protocol` and `config`.
"""
