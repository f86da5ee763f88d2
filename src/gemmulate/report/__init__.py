"""Reports: one self-contained page."""
