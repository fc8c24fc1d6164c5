"""What a proximal learner keeps of its rows: class-wise statistics, in folds, as messages."""
