"""Training: scripts that make the models this repository ships.

What lives here: the pocket model's data, ladder, optimiser and measurements. It may import `engine` and
`kernels`; it must never import `app`, `ingest` or `sessions`, and nothing that serves people imports it.
"""
