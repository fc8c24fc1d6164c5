"""Files of version 0.1.0 with every learner and wrapper of that version, and the scores that it computed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import steelyard

FILES = Path(__file__).parent / "files" / "0.1.0"
TOLD = json.loads((FILES / "told.json").read_text(encoding="utf-8"))


def test_every_stored_file_has_expected_scores():
    assert {path.stem for path in FILES.glob("*.steelyard")} == set(TOLD["told"])


@pytest.mark.parametrize("name", TOLD["told"])
def test_model_from_earlier_version_gives_same_scores_and_keeps_learning(name, tmp_path):
    model, points, told = steelyard.load(FILES / f"{name}.steelyard"), TOLD["points"], TOLD["told"][name]
    np.testing.assert_allclose(model.decision_function(points), told["scores"], rtol=1e-12, atol=1e-14)
    assert model.predict(points).tolist() == told["labels"]
    if hasattr(model, "partial_fit"):
        model.partial_fit(points, told["labels"])
    steelyard.save(model, tmp_path / "again.steelyard")
    again = steelyard.load(tmp_path / "again.steelyard")
    np.testing.assert_array_equal(again.decision_function(points), model.decision_function(points))
