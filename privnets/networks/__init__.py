"""Networks as stacks: parameters carry a leading dimension, one entry per model."""
