"""The time model: TME with its fourth term, the deconstruction cost."""
