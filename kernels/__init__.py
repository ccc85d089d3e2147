"""Tensor operations behind the engine, each as a reference, in PyTorch and in Triton, with one signature.

Lives here: arithmetic on tensors. Not here: models, methods, memories, settings. Nothing else of Stockpot is imported.
"""
