"""Evidence: paired measurements and verdicts."""
