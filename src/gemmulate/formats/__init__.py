"""Formats: what a unit can store and multiply exactly."""
