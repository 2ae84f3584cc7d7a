"""A program for each client, which reads requests and writes answers as lines of JSON."""
