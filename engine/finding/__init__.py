"""Finding: the passages of a text that a question is about, by words and by attention.

Nothing here knows how entries are kept, or which method read the text.
"""
