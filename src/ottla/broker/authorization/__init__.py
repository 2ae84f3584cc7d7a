"""Authorization: operations on resources, the standard authorizer, and the guards that run before the handlers."""
