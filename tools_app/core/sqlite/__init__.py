"""A database engine of Django: SQLite, for processes with several writing threads."""
