"""Pure tensor functions behind the engine: of each a PyTorch reference and a Triton kernel with one signature.

Lives here: arithmetic on tensors. Not here: models, methods, memories, settings; nothing of ours is imported.
"""
