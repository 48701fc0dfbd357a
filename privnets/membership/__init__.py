"""Membership leakage: train a model, ask who was in the training set (arXiv 2001.10648)."""
