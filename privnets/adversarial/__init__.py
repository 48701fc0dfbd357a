"""Adversarial data release: a releaser hides a secret while a utility survives."""
