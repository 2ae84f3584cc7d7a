"""What the active controller decides: pure functions from an image and a request to records and a reply.

Nothing changes until the records are applied to the image by `ottla.metadata.image`. All functions take a `View`, which
is an image seen with the settings of this controller; clocks, chance and ids arrive as arguments.
"""
