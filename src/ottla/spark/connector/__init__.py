"""Topics as sources and sinks of Spark, through PySpark. Needs the extra `ottla[spark]`."""
