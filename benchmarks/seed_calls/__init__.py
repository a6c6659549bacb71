"""Generated calls that fill the audit log of a database for load tests."""
