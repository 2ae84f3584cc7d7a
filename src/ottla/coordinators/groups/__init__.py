"""The group coordinator's rules: members, generations, assignments and committed offsets, as pure decisions."""
