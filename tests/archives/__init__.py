"""Databases of earlier versions of the hub, and what makes and uses them."""
