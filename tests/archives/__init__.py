"""Databases of each released version, named after its last migration, and the programs that create and use them."""
