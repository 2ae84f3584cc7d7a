"""Classic groups: members join, one of them assigns, all learn their part; then they only say that they are alive."""
