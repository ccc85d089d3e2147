"""Trained weights that lie beside a model's own: found, read, checked and written.

Lives here: Locret's retaining heads and Activation Beacon's projections. Not here: how they are trained, which
`training/` does, and what methods do with them.
"""
