"""Office documents and OpenDocument, and the parts that they share."""
