"""Models in one file of llama.cpp's format, GGUF, which holds configuration, tokenizer and weights."""
