"""Models that are one file of llama.cpp's format, GGUF: configuration, tokenizer and weights come from it."""
