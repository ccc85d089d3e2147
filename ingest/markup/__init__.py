"""HTML, XML and formulas, which many formats share."""
