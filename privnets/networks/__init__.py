"""Stacked networks: every parameter has a leading dimension for the networks of a stack."""
