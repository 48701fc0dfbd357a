"""Sweep storage: ledger, checkpoints, artifacts, manifest and lease."""
