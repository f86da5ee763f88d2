"""Distributed products: blocks of any chunking give the same bits."""
