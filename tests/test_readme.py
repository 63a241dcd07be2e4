"""README says what the records say."""

from __future__ import annotations

import re
import shutil

import pytest

from gelu_study import claims, paths, readme, study
from gelu_study.errors import StudyError


def test_the_answer_is_that_of_the_records():
    text = (paths.ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(f"{re.escape(readme.BEGIN)}(.*?){re.escape(readme.END)}", text, re.DOTALL)
    assert block is not None
    found = study.run("mnist-classifier", "powered", train=False)
    assert readme.answer(found) in block[1], "the records have changed: run `make readme`"
    assert readme.tally(claims.verdicts()) in block[1], "the records have changed: run `make readme`"
    assert (readme.FIGURE.as_posix() in block[1]) == bool(found.chosen)


def test_update_writes_between_the_markers_only(tmp_path):
    shutil.copy(paths.ROOT / "README.md", tmp_path)
    (tmp_path / readme.FIGURE).parent.mkdir(parents=True)
    before = (tmp_path / "README.md").read_text(encoding="utf-8")
    after = readme.update(tmp_path).read_text(encoding="utf-8")
    assert before.split(readme.BEGIN)[0] == after.split(readme.BEGIN)[0] and before.split(readme.END)[1] == after.split(readme.END)[1]
    assert readme.answer(study.run("mnist-classifier", "powered", train=False)) in after


def test_lost_markers_are_named(tmp_path):
    (tmp_path / "README.md").write_text("# Nothing here\n")
    with pytest.raises(StudyError, match="put them back"):
        readme.update(tmp_path)
