"""What needs a Spark session or its libraries: the connector, tables, pipelines."""
