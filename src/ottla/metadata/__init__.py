"""The cluster's metadata: images, consensus (KRaft), the controller's decisions, and the runtime of a node.

Imports `protocol`, `config`, `storage` and `security`. `image`, `consensus` and `controller` are pure.
"""
