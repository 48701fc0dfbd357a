"""Evaluation of trained releasers: metrics, baselines and estimates."""
