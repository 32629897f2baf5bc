"""`python -m selfspec` is the `selfspec` command."""

from selfspec.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
