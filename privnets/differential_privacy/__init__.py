"""Differentially private training: sensitivities, accountants and DP-SGD for stacks of models."""
