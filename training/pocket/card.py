"""Template of the model card, filled in by `export`."""

# ruff: noqa: E501 - Markdown, one sentence unbroken

CARD = """\
---
license: agpl-3.0
language: en
pipeline_tag: text-generation
---
# Stockpot's pocket model

A very small language model that looks things up in the text before it. It ships with Stockpot so that everything can be
tried and measured on a machine without a GPU and without a download. It knows nothing about the world, writes no prose worth
reading, and cannot reason: it finds what is stated, quotes it, or says that it is not there.

| | |
|---|---|
| architecture | Llama (stock `transformers`), tied embeddings, {parameters} M parameters |
| shape | {layers} layers, width {width}, {heads} query and {kv_heads} key-value heads of {head_size} |
| keys and values | {kv_bytes} bytes a token in bfloat16 |
| vocabulary | {vocabulary}, byte-level BPE, single digits |
| trained window | {window} tokens |
| training | {tokens} M tokens, {steps} steps, from {origin}, `stockpot train pocket` in this repository |

## How to ask

Put the text in the system message, after the words it was trained with, and ask in a user message:

    Answer questions about the text below. If the answer is not in it, say so.

    <text>

Answers begin with a space (the tokenizer puts one before every bare stretch of text); strip it. Greedy decoding is the default.

## Data

- Prose: 18 novels and books in the public domain in the United States, produced by Standard Ebooks (CC0-1.0). Four more
  (Middlemarch, Martin Eden, The House of Mirth, Kim) were kept out of training and tokenizer, for measuring.
- Facts, questions, quotations, refusals and lists of important statements: made by `training/pocket`, with invented names.
- A little at the end: FairytaleQA (Apache-2.0), XQuAD English (CC BY-SA 4.0), Natural Questions passages (Wikipedia, CC BY-SA 3.0).

Part of the training reads the document with a sliding window only, and lets questions reach the rest of it, and other
documents, at one constant distance (as Stockpot's `exact` method does beyond the model's window).

## Measured

Not measured yet. `python -m training.pocket.evaluate --model {folder}` does it: greedy answers, exact match, books and
names that training never saw.

## Limits

English only. Short, literal answers. It copies; it does not infer, count, compare or summarise in words of its own.
Do not use it for anything but trying Stockpot and measuring memory methods.

## Licence

Code and weights: AGPL-3.0-or-later, as the repository. The sources keep their own licences, given above.
"""
