"""What `make lab` sets: the records open by the links that lead to them, but are not listed to be deleted, and not saved over."""

from typing import Any

from tornado.web import HTTPError

c = get_config()  # noqa: F821  Jupyter has it


def keep_records(path: str, **_: Any) -> None:
    """Refuse to save a file among the records."""
    if path.strip("/").startswith("data/runs/"):
        raise HTTPError(403, reason="records in data/runs come from training and are never edited; save a copy elsewhere")


c.ContentsManager.pre_save_hook = keep_records
c.ContentsManager.hide_globs = ["__pycache__", "*.pyc", "*.egg-info", "*~", "runs"]
