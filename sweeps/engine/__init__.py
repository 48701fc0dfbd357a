"""Execution of sweeps on Ray."""
