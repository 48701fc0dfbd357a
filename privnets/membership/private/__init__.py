"""Differentially private target models: what they require, their guarantees, and their training."""
