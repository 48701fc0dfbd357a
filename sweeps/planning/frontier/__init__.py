"""Search for Pareto fronts with few trainings: an Optuna sampler on Gaussian processes."""
