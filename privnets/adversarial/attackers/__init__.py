"""Attackers, fitted afresh on finished releases only to measure what they tell of the secret."""
