"""The commands, one file for each group: `register` adds them to the parser, and each command is thin.

Nothing heavy is imported at the top of these files.
"""
