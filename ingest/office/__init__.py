"""Office and OpenDocument files: one converter each, and the parts they share."""
