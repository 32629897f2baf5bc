"""The commands that try things out and check them, one file each.

Each file has `add(commands, say)`, which adds the command to the parser of cli.py, and
costs nothing to import: help needs no MLX. Imports everything; nothing imports it but
cli.py.
"""
