"""One file an API: `(call, request) -> response`; `broker/requests/dispatch.py` stands in front of them all."""
