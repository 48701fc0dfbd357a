"""Benchmarks: contestants side by side in one run, medians of alternating rounds.

Each module runs alone as `python -m tests.benchmarks.NAME`, prints a table and appends its rows
to `results/NAME.csv`.
"""
