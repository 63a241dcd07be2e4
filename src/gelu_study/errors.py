"""Errors meant for a person: each says what was wrong, where, what is allowed and what to do."""


class StudyError(Exception):
    """The base of the package's own errors; the command line prints it without a traceback and exits with 2, a notebook shows the
    message alone."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in a traceback's place: how the package came to the error is nothing to a person at a notebook."""
        return str(self).splitlines()


class ConfigurationError(StudyError, ValueError):
    """A value that no run, plan or device accepts."""


class DataError(StudyError):
    """A data set that is absent, damaged or could not be fetched."""


class LedgerError(StudyError):
    """A record that is damaged or could not be written."""


class NewerRecordError(LedgerError):
    """A record that a newer version of the package wrote: not damaged, and not for this version to read. `key` is the run's, where
    this version can tell."""

    def __init__(self, message: str, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key


class NotebookError(StudyError):
    """A notebook that refused its parameters or failed while running."""


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written or used; the message names it and says what follows."""


class LedgerWarning(UserWarning):
    """Something in the ledger's folder is not read; the message names it and says why."""


class DamagedRecordWarning(LedgerWarning):
    """A file of the ledger could not be read as the record that its name promises; the message names it and says why."""
