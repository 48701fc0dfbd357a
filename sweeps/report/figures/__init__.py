"""Figures of a sweep."""
