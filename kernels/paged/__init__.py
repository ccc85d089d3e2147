"""Rows of slabs for kernels written in Triton: where they lie, and how they are loaded and turned.

Lives here: what those kernels share. Not here: anything that PyTorch runs; that is `kernels/rows.py`.
"""
