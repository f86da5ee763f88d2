"""Engines: who runs the products."""
