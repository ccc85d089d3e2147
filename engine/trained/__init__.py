"""Find, read, check and write trained weights that lie beside a model's own.

Lives here: Locret's retaining heads and Activation Beacon's projections. Not here: their training (`training/`), and
their use (`engine/methods/`).
"""
