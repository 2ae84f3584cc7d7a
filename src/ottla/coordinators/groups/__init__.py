"""The rules of the group coordinator: members, generations, assignments and committed offsets.

`classic`, `consumer`, `share` and `streams` have one kind of group each; `behaviour` combines them for the runtime.
All are pure; they import `protocol`, `metadata.image` and `storage.state_machine`.
"""
