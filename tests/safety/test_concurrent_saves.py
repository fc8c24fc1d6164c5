"""A saved file is a complete model even if saving processes are killed or run concurrently."""

from __future__ import annotations

from tests.safety.savers import kill_savers, save_at_once


def test_killed_save_leaves_old_or_new_model(tmp_path):
    outcome = kill_savers(tmp_path, 4, seed=1)
    assert outcome.new + outcome.old == 4


def test_concurrent_saves_to_one_path_do_not_mix(tmp_path):
    assert save_at_once(tmp_path, n_savers=2, seconds=0.5) > 0
