"""Captured steps: which trainings a CUDA graph repeats, and how many kernels they start.

`python -m campaigns.capture` trains on a stand-in for NVIDIA's driver, which counts kernels and
computes none. Each row of `benchmarks/results/capture.csv` is one training: the nodes of the graph
of its step, and the launches, copies included, and waits of a repeated step with its draws.
"""
