"""Experiment that replays the recorded points of a finished sweep."""
