"""What can go wrong with a sweep and its records, as the page on the record tells it: each fault with the tests that show it."""

from __future__ import annotations

import html
import os
from dataclasses import dataclass
from pathlib import Path

import pandas as pd


@dataclass(frozen=True)
class Fault:
    """What goes wrong, what comes of it, what a person sees, and the tests, each as `FILE::NAME` in the folder of tests."""

    what: str
    happens: str
    seen: str
    tests: tuple[str, ...]


FAULTS = (
    Fault(
        "The process is killed, or the power fails, while a record is written",
        "The record is there whole or not at all; what was finished before stays. What is left of the writing is never read, and "
        "deleted by a sweep a day later.",
        "Nothing; the same command goes on.",
        ("test_faults.py::test_a_writer_killed_at_any_stage_leaves_the_whole_record_or_none",),
    ),
    Fault(
        "The sweep is killed between records",
        "The next one trains what is missing, and ends with the same records as an undisturbed one.",
        "Nothing; the same command goes on.",
        (
            "test_sweep.py::test_killed_in_the_middle_and_started_again",
            "test_sweep.py::test_an_interrupted_sweep_ends_like_an_uninterrupted_one",
        ),
    ),
    Fault(
        "The disk takes no more bytes",
        "The sweep ends; nothing is left half-written.",
        "Which record could not be written, where and why; exit status 2.",
        ("test_faults.py::test_a_disk_that_takes_no_more_bytes", "test_ledger.py::test_a_write_that_fails_leaves_nothing"),
    ),
    Fault(
        "The ledger may not be written",
        "Nothing is trained for it. Reading goes on.",
        "Which folder, before the first step of training; exit status 2.",
        ("test_faults.py::test_a_ledger_that_may_not_be_written_is_said_before_training",),
    ),
    Fault(
        "Two sweeps of the same plan run at once",
        "Each run has one sound record, whoever finished it first; both sweeps end well. Some runs are trained twice.",
        "How many runs were trained twice, and whether both records are identical, equal within the tolerance, or differ.",
        (
            "test_faults.py::test_two_sweeps_of_one_plan_at_once",
            "test_sweep.py::test_runs_that_another_sweep_has_recorded_meanwhile_are_compared",
        ),
    ),
    Fault(
        "Processes write the same run at the same moment, and find the same damaged file",
        "The first to finish wins, and all are told of its record. The damaged file is moved once; a sound one that was moved in "
        "its place is put back.",
        "One warning that names the damaged file.",
        (
            "test_faults.py::test_writers_of_the_same_run_at_the_same_moment_agree_on_one_record",
            "test_ledger.py::test_a_sound_record_that_appears_while_another_is_set_aside_is_put_back",
        ),
    ),
    Fault(
        "A bit of a record flips, or a file ends early",
        "The checksum tells, whichever bit it is. The file is moved to <code>damaged/</code> and the run counts as missing.",
        "A warning that names the file, what is wrong with it and where it went.",
        (
            "test_faults.py::test_every_flipped_bit_of_a_record_is_noticed",
            "test_faults.py::test_every_truncated_record_is_noticed",
            "test_faults.py::test_flipped_bits_on_the_disk_are_set_aside_and_trained_again",
        ),
    ),
    Fault(
        "A bit flips in a record from before records had a checksum",
        "The configuration is held against the key, ends against the curves, and everything against what it can be. Another digit "
        "within a curve, of a value that no curve holds, or in the environment is not noticed.",
        "A warning as above, or nothing; <code>gelu-study verify</code> trains a sample again.",
        (
            "test_faults.py::test_in_an_older_record_a_flipped_bit_of_what_names_the_run_is_noticed",
            "test_faults.py::test_the_page_counts_the_records_with_a_checksum",
            "test_ledger.py::test_older_records_are_read_and_stay_as_they_are",
        ),
    ),
    Fault(
        "A record bears another run's name, or a copy lies in another folder",
        "It is not counted. The former is moved to <code>damaged/</code>, the latter stays.",
        "A warning that names it.",
        (
            "test_ledger.py::test_a_record_under_another_runs_name_is_damaged",
            "test_ledger.py::test_a_copy_in_another_folder_is_named_and_not_counted",
        ),
    ),
    Fault(
        "A folder, a dead link or a link to itself has a record's name",
        "It is moved to <code>damaged/</code>, and the run counts as missing.",
        "A warning that names it.",
        ("test_ledger.py::test_what_is_no_file_is_set_aside_and_the_run_can_be_written",),
    ),
    Fault(
        "What is damaged cannot be moved",
        "It is ignored where it lies, and nothing is trained that could then not be written.",
        "Which name is in the way; exit status 2.",
        ("test_ledger.py::test_where_nothing_can_be_set_aside_nothing_is_trained_and_nothing_lost",),
    ),
    Fault(
        "A newer version of the package wrote the record",
        "It stays where it is and is not counted. A sweep that plans this run stops before training.",
        "How many there are, with an example, and to update the package.",
        (
            "test_ledger.py::test_records_of_a_newer_version_stay_where_they_are",
            "test_faults.py::test_what_is_left_where_it_is_takes_a_line_each",
        ),
    ),
    Fault(
        "The record is of another engine",
        "It is read like any other; its run is another one, since the engine's number is part of the name.",
        "Nothing.",
        ("test_ledger.py::test_records_of_another_engine_are_read",),
    ),
    Fault(
        "The clock is wrong, or is set back",
        "Nothing is decided by the time of day, save when what killed writers and downloads left is deleted, a day later. "
        "Durations and deadlines go by a clock that cannot be set.",
        "The date that a record says it began.",
        (
            "test_faults.py::test_a_clock_that_is_set_wrong_changes_nothing",
            "test_faults.py::test_nothing_is_decided_by_the_time_of_day",
        ),
    ),
    Fault(
        "There are ten thousand records",
        "Each is read once, and damage is found among them.",
        "<code>gelu-study status</code> took two seconds on two quiet cores; its test fails beyond eight of processor time.",
        ("test_faults.py::test_status_of_ten_thousand_records",),
    ),
    Fault(
        "The command's output cannot be written, or a path is empty",
        "The command ends. An empty path is not taken for the current folder.",
        "What could not be written, or which option is empty; exit status 2.",
        ("test_faults.py::test_output_that_cannot_be_written", "test_faults.py::test_an_empty_path_is_no_ledger"),
    ),
    Fault(
        "A worker of a cluster is killed in the middle of a stack",
        "Another begins the stack again, from its checkpoint where it can read it. Without a worker, the sweep waits for one.",
        "A line that names the lost worker.",
        (
            "test_cluster.py::test_a_worker_killed_in_mid_stack",
            "test_cluster.py::test_the_only_fit_worker_dies_beside_an_unfit_one",
        ),
    ),
    Fault(
        "A stack kills every worker that takes it",
        "The others are trained and recorded; after several workers the stack is given up.",
        "At the end, which stack, and to give it more memory or fewer networks; exit status 2.",
        ("test_cluster.py::test_a_stack_that_its_workers_die_of",),
    ),
    Fault(
        "The scheduler of a cluster is lost",
        "The sweep looks for it for some seconds and hands it again what it had lost, or ends. Records are on the client's disk.",
        "A line when the connection breaks; exit status 2 when it stays broken.",
        (
            "test_cluster.py::test_a_lost_scheduler",
            "test_cluster.py::test_a_scheduler_that_comes_back",
            "test_cluster.py::test_the_scheduler_is_lost_while_there_is_no_worker",
            "test_cluster.py::test_a_scheduler_that_freezes",
        ),
    ),
    Fault(
        "A worker, or the scheduler, is lost when a stack is done and its records are not yet there",
        "The stack is handed over once more, to what is left or comes back.",
        "As when either is lost in mid-stack.",
        ("test_cluster.py::test_what_is_done_and_cannot_be_fetched_is_handed_over_again",),
    ),
    Fault(
        "The time limit passes after workers have died",
        "The sweep ends, whether another worker has gone on with what they trained or not; checkpoints stay.",
        "How many runs are missing.",
        (
            "test_cluster.py::test_a_deadline_holds_when_the_workers_die",
            "test_cluster.py::test_a_deadline_holds_for_a_stack_that_was_moved",
        ),
    ),
    Fault(
        "A worker hangs and does not answer",
        "Before it has begun: the others get all there is to train. Later: the scheduler gives it up when it hears nothing of it "
        "(its setting <code>worker-ttl</code>, five minutes), and what it had begun begins again on another.",
        "A line that names it.",
        (
            "test_cluster.py::test_a_worker_that_does_not_answer_holds_nobody_up",
            "test_cluster.py::test_a_worker_that_freezes_in_mid_stack",
        ),
    ),
    Fault(
        "Workers run another version of the package or another engine, or cannot import it",
        "They get nothing to train. Where no other is left, the sweep ends.",
        "A line for each, with its version.",
        ("test_cluster.py::test_unfit_workers_get_nothing_and_are_named",),
    ),
    Fault(
        "A worker lacks the data set, or its copy is damaged",
        "It gets nothing to train; data never travel with a task.",
        "A line that names the worker and what to do there.",
        ("test_cluster.py::test_workers_without_data",),
    ),
    Fault(
        "Ctrl-C",
        "What was finished is kept, long trainings go on from their checkpoints, and local workers end with the sweep.",
        "A line; exit status 130.",
        (
            "test_sweep.py::test_an_interrupted_sweep_ends_like_an_uninterrupted_one",
            "test_cluster.py::test_ctrl_c_ends_workers_too_and_keeps_what_is_done",
        ),
    ),
)
"""In the order of the table; texts are HTML. Whether the tests exist is tested."""


def checksums(ledger: str | os.PathLike[str]) -> str:
    """How many records end with their checksum, and what tells of a change in the others."""
    found = list(Path(ledger).glob("[0-9a-f][0-9a-f]/*.json"))
    sealed = sum('"sha256"' in path.read_text(encoding="utf-8", errors="replace")[-100:] for path in found)
    text = f"{sealed:,} of the {len(found):,} records here end with their checksum."
    if sealed < len(found):
        text += " In the others, which are older, a changed digit may go unnoticed when they are read; `git status data/runs` "
        text += "names every record that is not as it was published, and `git checkout -- data/runs` brings it back."
    return text


def table(repository: str = "") -> pd.DataFrame:
    """The faults as HTML, a row each; the tests are links where the repository's address is given."""
    rows = [
        {
            "what goes wrong": fault.what,
            "what comes of it": fault.happens,
            "what is seen": fault.seen,
            "shown by": "<br>".join(_linked(test, repository) for test in fault.tests),
        }
        for fault in FAULTS
    ]
    return pd.DataFrame(rows)


def _linked(test: str, repository: str) -> str:
    file, _, name = test.partition("::")
    said = html.escape(name.removeprefix("test_").replace("_", " "))
    return f'<a href="{html.escape(repository)}/blob/HEAD/tests/{file}">{said}</a>' if repository else said
