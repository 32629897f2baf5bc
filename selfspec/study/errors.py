"""Errors of the study that a reader meets: one line, the thing named, the way out."""


class StudyError(Exception):
    """A study that cannot run or whose outcome must not be used."""


class RefusedModelError(StudyError):
    """A model that an experiment cannot be run with: a finding, which gets a page."""
