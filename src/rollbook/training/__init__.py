"""Loops that bring algorithms and environments together, as tracked runs."""
