"""One program a client: it is told what to do by lines of JSON, and answers by lines of JSON."""
