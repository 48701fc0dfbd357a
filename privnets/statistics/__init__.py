"""Values with uncertainty: standard errors, intervals, ROC curves, resampling."""
