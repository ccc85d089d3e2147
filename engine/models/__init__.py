"""transformers models: which are supported, and how they are loaded, quantised, measured and given to a memory.

Lives here: architectures, weight files, GGUF, quantisation, sizes, RoPE, recurrent states, the attention interface.
Not here: memories, which know models only by their `ModelSpec`, and the loaded model with its tokenizer (`model.py`).
"""
