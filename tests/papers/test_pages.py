"""Pages keep the sections of experiments that were not run again, and verdicts follow from the numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from papers import Context, Experiment, Result, Row, experiments, revision, run
from papers.claims import CLAIMS, judged
from papers.page import write_page
from papers.sections import Section, find_sections, read_sections, section_of
from papers.storage import write_report

PAGES = Path(__file__).parents[2] / "docs" / "papers"


def report(name, mean, *, layout="long", quick=False):
    rows = [
        Row("a set", "ours", "AUC", mean, std=0.01, rounds=5, paper=0.9, paper_std=0.02, tolerance=0.01),
        Row("a set", "theirs, too", "G-mean", 1234.5),
    ]
    experiment = Experiment(
        name, "Paper", f"Title of {name}", lambda _: Result(rows, ["A note."], layout=layout)
    )
    return run(experiment, Context(quick=quick))


@pytest.mark.parametrize("layout", ["long", "wide"])
def test_section_is_parsed_with_numbers_and_counts(layout):
    made = section_of(report("dcil-table-5.1", 0.95, layout=layout, quick=True), {})
    found = find_sections(f"# Page\n\nText.\n\n{made.text}\n## Another chapter\n")["dcil-table-5.1"]
    assert found == made
    assert found.numbers() == {
        ("a set", "ours", "AUC"): (0.95, 0.9, 0.01),
        ("a set", "theirs, too", "G-mean"): (1234.5, None, 0.0),
    }
    assert found.verdicts() == {("a set", "ours", "AUC"): ("0.950 ± 0.010", "0.900 ± 0.020", "better")}
    assert found.counts == {"better": 1, "reached": 0, "short": 0}
    assert found.circumstances.startswith("quick run, seed 0")


def test_sections_of_experiments_that_did_not_run_are_kept(tmp_path):
    page = tmp_path / "papers.md"
    for folder, name, mean in (("first", "dcil-table-5.1", 0.95), ("first", "kba-table-4", 0.7)):
        write_report(report(name, mean), tmp_path / folder)
    write_page([tmp_path / "first"], page)
    before = (tmp_path / "papers" / "kba.md").read_text(encoding="utf-8")
    write_report(report("dcil-table-5.1", 0.5), tmp_path / "second")
    write_page([tmp_path / "second"], page)
    assert (tmp_path / "papers" / "kba.md").read_text(encoding="utf-8") == before
    assert "short by 0.400" in (tmp_path / "papers" / "dcil.md").read_text(encoding="utf-8")
    assert "| all | 2 | 2 | 0 | 0 | 2 |" in page.read_text(encoding="utf-8")


def test_every_section_is_a_registered_experiment():
    assert set(read_sections(PAGES)) <= set(experiments())


def test_claim_without_numbers_has_no_verdict():
    assert {judged(claim, {}).kind for claim in CLAIMS} == {"not measured"}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.words[:40])
def test_every_claim_has_a_verdict(claim):
    finding = judged(claim, read_sections(PAGES))
    assert finding.kind in {"holds", "holds in part", "does not hold"}
    assert any(character.isdigit() for character in finding.numbers)


def test_verdict_changes_with_numbers():
    claim = next(claim for claim in CLAIMS if claim.needs == ("dcil-table-5.1",))
    for value, kind in ((1e-14, "holds"), (0.3, "does not hold")):
        row = Row("iris", "DCIL-IncLPSVM", "angle", value)
        made = run(Experiment("dcil-table-5.1", "P", "T", lambda _, row=row: Result([row])), Context())
        assert judged(claim, {"dcil-table-5.1": section_of(made, {})}).kind == kind


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.words[:40])
def test_every_verdict_changes_for_some_other_numbers(claim, rng):
    sections = read_sections(PAGES)
    needed = [sections[name].numbers() for name in claim.needs]
    as_shown = claim.judge(*needed)

    def changed(number):
        """Return changed numbers: each number independently, or all numbers of a learner by one factor."""
        alike = {learner: rng.lognormal(0.0, 3.0) for numbers in needed for _, learner, _ in numbers}
        return [
            {
                key: figure._replace(
                    ours=figure.ours * (alike[key[1]] if number % 2 else rng.lognormal(0.0, 3.0))
                    + (rng.normal() if number % 3 else 0.0),
                    spread=figure.spread * rng.lognormal(0.0, 3.0),
                )
                for key, figure in numbers.items()
            }
            for numbers in needed
        ]

    inverted = [
        {key: figure._replace(ours=1.0 / (abs(figure.ours) + 1e-9)) for key, figure in numbers.items()}
        for numbers in needed
    ]
    others = [claim.judge(*changed(number)) for number in range(60)]
    others += [claim.judge(*inverted)]
    assert {one.kind for one in others} - {as_shown.kind}
    assert {one.numbers for one in others} - {as_shown.numbers}


def test_claims_page_matches_sections(tmp_path):
    from papers.claims import claims_page
    from papers.page import _WRITTEN

    sections = read_sections(PAGES)
    order = {name: sections[name] for name in experiments() if name in sections}
    assert (PAGES / "claims.md").read_text(encoding="utf-8") == claims_page(order, _WRITTEN)


def test_section_without_table_has_no_numbers():
    assert Section("x", "## T\n\n`python -m papers run x` (full run, seed 0, 1 s)\n").numbers() == {}


def test_page_of_own_results_starts_with_summary(tmp_path):
    rows = [
        Row(on, learner, "AUC", mean, paper=0.9, tolerance=0.01)
        for on, mean in (("a set", 0.95), ("another", 0.8), ("a third", 0.905))
        for learner in ("chosen by validation", "StreamClassifier", "ProximalSVC, automatic")
    ]
    for name, layout in (("own-koil-small", "wide"), ("own-dcil", "long")):
        made = Experiment(name, "P", "T", lambda _, layout=layout: Result(rows, layout=layout))
        write_report(run(made, Context()), tmp_path / "results")
    write_page([tmp_path / "results"], tmp_path / "papers.md")
    page = (tmp_path / "papers" / "own.md").read_text(encoding="utf-8")
    head = page.partition("\n## ")[0]
    assert "Of 6 numbers: better 2, reached 2, short 2." in head
    for paper in ("KOIL", "DCIL"):
        assert f"| {paper} | a set | AUC | 0.900 | 0.950 | 0.950 | better | full |" in head
    assert head.count("ProximalSVC, automatic") == 0
    table = [line for line in head.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in table} == {9}


def test_sections_without_commit_or_with_changed_module_are_stale(monkeypatch):
    line = "## T\n\n`python -m papers run {0}` (full run, seed 0, 1 s{1})\n"
    commits = {"old": ", commit abc1234", "new": ", commit def5678", "unknown": ""}
    sections = {name: Section(name, line.format(name, commit)) for name, commit in commits.items()}
    monkeypatch.setattr(
        revision, "_git", lambda *arguments: "9999999\n" if "abc1234..HEAD" in arguments else ""
    )
    reasons = revision.stale_sections(sections, dict.fromkeys(sections, "papers.mhe"))
    assert reasons == {"old": "papers/mhe.py changed in 9999999", "unknown": "no commit"}
