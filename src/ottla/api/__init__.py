"""One file an API: `(call, request) -> response`; `dispatch.py` stands in front of them all."""
