"""Benchmarks: contestants side by side in one run, medians of alternating rounds.

Each module that publishes runs alone as `python -m benchmarks.NAME`, prints a table and
appends its rows to `results/NAME.csv`. The others are what these share: the toy sweep that
`end_to_end` compares is in `toy`, its contestants in `plain_toy`, `stock_toy` and `optuna_toy`.
"""
