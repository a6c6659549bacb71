"""A kind of tools that only tests have: each tool answers with the text of its configuration."""
