"""Command line of `sweeps`: one module per group of commands."""
