"""What a node is configured with: the settings of Kafka 4.3.1, properties files, listeners, typed node settings.

Imports `protocol`. Checks across settings that ask other rooms are in `node/consistency.py`.
"""
