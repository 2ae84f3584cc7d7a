"""Topics as tables: managed queries that keep Iceberg, Delta and Parquet tables in step with topics."""
