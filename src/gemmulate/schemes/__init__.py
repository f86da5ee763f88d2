"""Schemes: how wide matrix products become encoded integer products, and how wrong they may be."""
