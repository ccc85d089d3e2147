"""Training: scripts that make the models this repository ships.

What lives here: the pocket model's data, ladder, optimiser and measurements, and what trains Locret's retaining heads
and Activation Beacon's weights for any model. It may import `engine` and `kernels`; it must never import `app`,
`ingest` or `sessions`, and nothing that serves people imports it.
"""
