"""The command groups, one file each: `register` adds its commands to the parser, and each command is thin.

Nothing heavy is imported at the top of these files.
"""
