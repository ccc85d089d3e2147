"""The way in: a person opens the page, drops in a text, reads it, and asks. The same is asked of llama.cpp.

    python -m benchmarks.way_in --model smollm2 --book gatsby.epub --paper dpr.pdf --out results/way-in-smollm2.json

A real browser drives a server of its own. Each question is asked in a new chat, with the likeliest word each time. An
answer is right if it contains an accepted answer; it is cited if a passage that the page shows with it contains the
sentence of the text that answers the question. llama.cpp gets the whole text before each question and keeps what it
has read of it, through `--llama-cpp-python`, an interpreter that has this package, and `--gguf`, the model's file.

What is done is kept in `--out` and not done again: a text that was stopped in the middle is begun again.
"""
