"""Who may do what, and how much of it: access rules and quotas. Pure: images and times come in, answers go out."""
