"""Consumer groups whose assignments the coordinator makes itself (KIP-848), as pure decisions."""
