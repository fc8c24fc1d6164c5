"""Data to try learners on."""
