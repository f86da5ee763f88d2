"""Encodings: how an integer product becomes products of narrow values."""
