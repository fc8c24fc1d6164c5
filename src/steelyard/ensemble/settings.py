"""Tuning constants of StreamClassifier, with their units."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SETTINGS", "Settings"]


@dataclass(frozen=True)
class Settings:
    """Tuning constants of the ensemble; costs are microseconds on a typical machine."""

    # Number of rows in the first block and in the largest block that is scored and then learned together.
    first_block_rows: int = 50
    max_block_rows: int = 1000
    pending_rows: int = 10  # number of single rows that are collected and learned together
    # Minimum block size for threads; for smaller blocks, starting a thread takes longer than it saves.
    min_rows_for_threads: int = 50
    max_columns: int = 256  # wider rows are hashed into this many columns

    # Row buffer: recent rows kept in addition to the rows that experts remember.
    buffer_rows: int = 5000
    buffer_rows_of_classes: int = 1000  # number of additional rows, divided among all classes
    # Longer runs of rows without a new label do not affect the weights of the label frequency experts.
    max_label_run_rows: int = 50
    slack: float = 0.5  # fraction by which a buffer may exceed its size before it is compacted

    # The rank transformation and the random feature map are fitted twice, after these numbers of rows.
    view_rows: tuple[int, int] = (100, 1000)

    # Compute budget in microseconds per row for compute_budget="auto".
    budget_us: float = 120.0
    long_budget_us: float = 80.0  # budget after `long_stream_rows` rows
    long_stream_rows: int = 20_000
    long_after_drift_rows: int = (
        2500  # number of rows after a drift for which a long stream gets the first budget again
    )
    long_batch_rows: int = 500  # number of rows that expensive experts learn together in a long stream
    solve_share: float = 0.15  # fraction of the budget for solving one linear system
    weigh_share: float = 0.15  # fraction of the budget for updates of the expert weights
    # Fixed cost of an update of the expert weights, and cost per score of a row.
    weigh_cost_us: tuple[float, float] = (1600.0, 400.0)
    weigh_min_rows: int = 50  # minimum number of rows between two updates of the expert weights
    # Maximum number of classes; with more, each has too few recent rows to compute expert weights.
    max_weighed_classes: int = 200

    # Score buffer: recent out-of-sample scores.
    score_rows: int = 1000
    max_score_rows: int = 4000  # number of recent scores if one of two classes is very rare
    # Lower and upper limit of the minimum number of rows per class.
    score_rows_of_class: tuple[int, int] = (20, 100)
    # Numbers of newest rows that are kept after a drift, in total and per class.
    score_rows_after_drift: tuple[int, int] = (200, 25)
    short_after_drift_rows: int = 1000  # number of rows after a drift for which the score buffer stays short
    min_rows_between_drifts: int = 3000  # minimum distance of drifts that shorten the score buffer
    share_half_life_rows: float = 1000.0  # half-life of the observed class shares
    predicted_rows: int = 100_000  # number of rows whose scores are kept until their labels arrive

    # Expert weights for two classes; the formula is in mixing.py.
    min_scored_rows: int = 2  # minimum number of rows of each class for computing expert weights
    min_threshold_rows: int = 5  # minimum number of rows of each class for choosing a threshold
    auc_sharpness: float = 15.0
    balanced_loss_sharpness: float = 5.0
    observed_loss_sharpness: tuple[float, float] = (
        10.0,
        25.0,
    )  # exponents of the expert weights, for short and for long streams
    min_relative_weight: float = 0.01  # weights below this fraction of the largest one become 0
    threshold_trust: float = 0.5  # factor that shrinks the threshold with the best G-mean towards 0
    correction_rows: int = 5000  # number of recent rows used to correct the weights, see WeightCorrection
    min_correction_rows: int = 1000  # with fewer remembered rows the weights are not corrected
    correction_ridge: float = 100.0  # ridge penalty of the correction of a weight
    max_delay_rows: int = 5000  # longer delays change the weights no further
    linear_log_odds: float = 6.0  # largest limit beyond which calibrated log-odds grow logarithmically

    # Expert weights for more than two classes: prior * exp(recall_sharpness * mean recall).
    recall_sharpness: float = 20.0
    threshold_passes: int = 2
    threshold_step: float = 0.5


SETTINGS = Settings()
