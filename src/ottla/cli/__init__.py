"""The command line: `ottla` and its subcommands, one module each."""
