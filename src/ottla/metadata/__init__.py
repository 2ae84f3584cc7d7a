"""The cluster's metadata: the image, consensus (KRaft), the controller's decisions, and what runs them on a node.

Imports `protocol`, `config`, `storage` and `security`. `image`, `consensus` and `controller` are pure.
"""
