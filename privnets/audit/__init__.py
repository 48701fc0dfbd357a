"""Audit of existing models: membership attacks on saved outputs, with intervals and a verdict."""
