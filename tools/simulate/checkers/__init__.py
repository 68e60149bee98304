"""Checkers of the simulation. They have their own code: none of them calls the function that it checks."""
