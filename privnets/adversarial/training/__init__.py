"""Training of releasers against adversaries."""
