"""The order in which Java's collections give back what they hold, where clients can see it. Pure."""
