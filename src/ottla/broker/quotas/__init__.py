"""Client quotas: rates over windows, and how long a client is throttled. Pure."""
