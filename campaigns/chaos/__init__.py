"""Faults injected into real sweeps on a real cluster: nothing may be lost, doubled or retrained."""
