"""Tensor operations behind the engine, each as a PyTorch reference and a Triton kernel with one signature.

Lives here: arithmetic on tensors. Not here: models, methods, memories, settings. Nothing else of Stockpot is imported.
"""
