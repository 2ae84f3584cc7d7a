"""The iteration order of Java's collections, where clients can observe it. Pure."""
