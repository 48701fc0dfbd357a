"""Checks of everything that a sweep needs, on the machines where it would run."""
