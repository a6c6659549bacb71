"""Databases of earlier versions of the hub, and the programs that create and use them."""
