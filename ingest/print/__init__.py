"""PDF and the layout of printed pages: lines, columns, running heads, fonts and OCR."""
