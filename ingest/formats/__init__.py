"""Formats that are text or markup at heart, one file for each: books, web pages, mail, plain text."""
