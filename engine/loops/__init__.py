"""Loops: reading a text, conversations over it, and rereading.

Not here: how entries are kept. A loop provides what a method declares, and never asks for a method's name.
"""
