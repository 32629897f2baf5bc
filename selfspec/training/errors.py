"""Errors of training that a reader meets: one line, the thing named, the way out."""


class TrainingError(Exception):
    """A training that cannot begin, go on or be used."""
