"""One token at a time: recordings of the pass of a token, as CUDA graphs.

Not here: what the pass computes; it is the memory's and the model's.
"""
