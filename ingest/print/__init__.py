"""PDF, and the layout of printed pages."""
