"""Analysis of results: tables, Pareto fronts, statistics and comparisons."""
