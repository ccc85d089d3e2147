"""Loops: reading a text, conversations over it, and answers from places that are read again.

Loops do not know how entries are kept. They follow a method's declarations and never ask for its name.
"""
