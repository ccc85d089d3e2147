"""Decoding: one token at a time, with its pass recorded as a CUDA graph.

Not here: the computation of a pass, which is the memory's and the model's.
"""
