"""Membership experiment: train target models on random subsets, and attack their membership."""
