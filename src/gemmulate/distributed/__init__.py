"""Distributed products: blocks of any chunking give the same bits. dask is loaded when a product is asked for."""

from gemmulate.distributed.product import matmul

__all__ = ["matmul"]
