"""Access to rows of slabs for Triton kernels: find a row, load it, dequantise it and rotate it.

Lives here: code that these kernels share. Not here: anything that PyTorch runs; that is `kernels/rows.py`.
"""
