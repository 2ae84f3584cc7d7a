"""Client quotas: rates over windows, and throttle times. Pure."""
