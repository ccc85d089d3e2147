"""XML and HTML, and formulas in them."""
