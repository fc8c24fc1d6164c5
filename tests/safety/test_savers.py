"""Whatever becomes of the processes that save it, a file is a whole model."""

from __future__ import annotations

from tests.safety.savers import kill_savers, save_at_once


def test_a_saver_that_is_killed_leaves_the_old_model_or_the_new_one(tmp_path):
    outcome = kill_savers(tmp_path, 4, seed=1)
    assert outcome.new + outcome.old == 4


def test_savers_of_one_path_do_not_mix_their_models(tmp_path):
    assert save_at_once(tmp_path, n_savers=2, seconds=0.5) > 0
