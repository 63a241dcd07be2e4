"""What the notebooks show: numbers in words, the answer's sentences, and the rule's page beside the rule."""

from __future__ import annotations

import dataclasses
import math
import re

import pandas as pd
import pytest

import synthetic
from gelu_study import pages, paths, protocols, published, statistics, study

CLAIM = published.CLASSIFIER


def verdict_rows(*verdicts: str, measured: float = 0.5) -> pd.DataFrame:
    """A table as `statistics.verdicts` gives it, for the claim's four comparisons."""
    cells = [(keep, rival) for keep in CLAIM.keep_probabilities for rival in CLAIM.rivals]
    rows = [
        {
            "rival": rival,
            "keep_probability": keep,
            "measured": measured,
            "low": 0.9 * measured,
            "high": 2.2 * measured,
            "n": 0 if verdict == "not run" else 5,
            "verdict": verdict,
        }
        for (keep, rival), verdict in zip(cells, verdicts, strict=True)
    ]
    overall = {"rival": None, "keep_probability": math.nan, "measured": math.nan, "n": math.nan}
    return pd.DataFrame([*rows, {**overall, "verdict": statistics.combined(verdicts)}])


@pytest.mark.parametrize(
    ("verdicts", "headline"),
    [
        (["reproduced"] * 4, "**Yes.** GELU ends with the lowest training loss in all 4 comparisons."),
        (["equivalent", *["reproduced"] * 3], "nowhere beaten, but ties"),
        (["contradicted", *["reproduced"] * 3], "**Not in every comparison.** GELU's training loss is lower in 3, higher in 1 of 4"),
        (["contradicted"] * 4, "**No.** GELU's training loss is higher in 4 of 4"),
        (["unresolved", *["reproduced"] * 3], "**Undecided.** GELU's training loss is lower in 3, undecided in 1 of 4"),
        (["not run"] * 4, "**No answer yet.**"),
    ],
)
def test_the_answer_says_what_the_verdicts_say(verdicts, headline):
    lines = "\n".join(pages.answer_lines(verdict_rows(*verdicts), CLAIM))
    assert headline in lines
    assert lines.count("\n- ") == (0 if "not run" in verdicts else 2)


def test_the_answer_leaves_out_comparisons_without_runs():
    lines = "\n".join(pages.answer_lines(verdict_rows("reproduced", "reproduced", "not run", "not run"), CLAIM))
    said = "50 % lower than {}'s (95 % interval 55 % lower to 10 % higher; reproduced)"
    assert f"- Without dropout: GELU's final training loss is {said.format('ReLU')} and {said.format('ELU')}." in lines
    assert "keep probability" not in lines


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (0.4, "60 % lower than ReLU's"),
        (0.985, "1.5 % lower than ReLU's"),
        (1.02, "2.0 % higher than ReLU's"),
        (3.4, "240 % higher than ReLU's"),
        (1.0001, "the same as ReLU's"),
        (math.inf, "infinitely higher than ReLU's"),
    ],
)
def test_a_ratio_in_words(ratio, words):
    assert pages.against(ratio, "ReLU") == words


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (0.69, 0.948, "31 % to 5.2 % lower"),
        (0.69, 1.35, "31 % lower to 35 % higher"),
        (1.0, 1.3, "the same to 30 % higher"),
        (1.1, math.inf, "10 % to infinitely higher"),
    ],
)
def test_an_interval_in_words(low, high, words):
    assert pages.span(low, high) == words


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0123456, "0.0123"), (2.0, "2.00"), (123.4, "123"), (1234.5, "1.23e+03"), (3e-7, "3.00e-07"), (0, "0"), (0.99999, "1.00")],
)
def test_a_number_keeps_its_significant_digits(value, shown):
    assert pages.number(value) == shown


def test_what_is_no_number_is_shown_as_such():
    assert pages.number(math.inf) == "∞"
    assert pages.number(math.nan) == "–"
    assert pages.rate(1e-5) == "0.00001"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("from -3 to 10, [-0.5, -1e-7]", "from −3 to 10, [−0.5, −1e-7]"),
        ("2026-11-30, SHA-256, x-1, 5-10", "2026-11-30, SHA-256, x-1, 5-10"),
        ("- 3 items", "- 3 items"),
        ('<a href="-1.html">-1</a> <code>x[-1]</code> `-p scale=-1`', '<a href="-1.html">−1</a> <code>x[-1]</code> `-p scale=-1`'),
        ("a < b - 2, -2", "a < b - 2, −2"),
    ],
)
def test_a_shown_number_has_a_true_minus_sign(written, shown):
    assert pages.minus(written) == shown


def test_every_verdict_has_a_badge_and_a_style():
    style = (paths.BOOK / "_static" / "study.css").read_text(encoding="utf-8")
    for verdict in (*statistics.LINKS, statistics.NOT_RUN):
        assert verdict in pages.BADGES
        assert f".verdict-{verdict.replace(' ', '-')}" in style


def test_the_rule_s_page_states_the_constants_of_the_rule():
    source = (paths.BOOK / "verdicts.md").read_text(encoding="utf-8")
    page = " ".join(re.sub(r"\{term\}`([^`<]*?)(?: <[^`]*>)?`", r"\1", source).split())  # as a reader sees it
    assert rf"< \ln {1 + statistics.MARGIN:g}$" in page
    assert f"a margin of {100 * statistics.MARGIN:g} %" in page
    assert f"judged at a level of {100 * statistics.SIGNIFICANCE:g} %" in page
    assert f"the {100 * statistics.CONFIDENCE:g} % bootstrap interval" in page
    assert f"a power of {100 * statistics.POWER:g} %" in page
    assert statistics.LEAST_SEEDS == 3 and "fewer than three common seeds" in page
    assert "from weak to strong: *" + ", ".join(statistics.LINKS) + "*" in page
    order = re.findall(r"\d\. \*([a-z ]+)\*:", page)
    assert order == ["not run", "unresolved", "equivalent", "reproduced", "contradicted", "unresolved"]
    assert [statistics.verdict(*case) for case in ((0, 0, 0, -1, -1), (2, 0, 0, -1, -1), (5, 0, 0, -1, -1), (5, 0, 1, -1, -1))] == order[:4]


@pytest.mark.parametrize(("scale", "said"), [("quick", True), ("paper", False), ("powered", False)])
def test_a_reduced_run_says_that_it_is_no_verdict_on_the_paper(monkeypatch, tmp_path, scale, said):
    texts: list[str] = []
    monkeypatch.setattr(pages, "text", texts.append)
    pages.progress(study.run("mnist-classifier", scale, train=False, ledger=tmp_path))
    assert any("A reduced run." in text and "no verdict" in text for text in texts) == said


def test_the_answer_says_which_rates_lie_at_an_edge(monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(pages, "text", said.append)
    found = study.run("mnist-classifier", "powered", train=False)
    pages.answer(found)
    edges = int(statistics.choose_learning_rates(found.table)["at_edge"].sum())
    assert edges == 6
    assert "6 of the 6 learning rates that validation chose lie at the edge" in said.pop()


def test_of_a_single_rate_no_choice_is_spoken(monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(pages, "text", said.append)
    found = study.run("mnist-classifier", "powered", learning_rates=[1e-3], train=False)
    pages.answer(found)
    pages.rates_table(found)
    assert not any("edge" in text for text in said)
    assert said[-1].startswith("A learning rate of 0.001 is the only one")


def test_of_an_unfinished_grid_nothing_is_said_to_be_chosen(monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(pages, "text", said.append)
    planned = protocols.plan("mnist-classifier", "paper", learning_rates=[1e-3])
    held = synthetic.Held([synthetic.finished(config, lambda name, epochs: 0.1 / epochs) for config in planned])
    pages.rates_table(study.run("mnist-classifier", "paper", train=False, ledger=held))
    assert said == ["No learning rate can be chosen while the grid of learning rates is incomplete."]


def test_the_library_of_the_products_is_named_where_it_is_not_the_usual_one(monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(pages, "text", said.append)
    planned = protocols.plan("mnist-autoencoder", "paper", learning_rates=[1e-3])
    records = [synthetic.finished(config, lambda name, epochs: 0.01 / epochs) for config in planned]
    for place, where in enumerate([{"products": "onednn"}, {"earlier": [{"products": "onednn", "device_name": "Abacus"}]}]):
        where = {**records[place].environment, **where}
        records[place] = dataclasses.replace(records[place], environment=where)
    for held, words in ((records, "; oneDNN took matrix products of 2 of the runs."), (records[2:], "float32.")):
        found = study.run("mnist-autoencoder", "paper", learning_rates=[1e-3], train=False, ledger=synthetic.Held(held))
        pages.provenance(found)
        device = next(line for line in said.pop().splitlines() if line.startswith("- **Device:**"))
        assert device.endswith(words)
        assert ("Abacus" in device) == (held is records)
