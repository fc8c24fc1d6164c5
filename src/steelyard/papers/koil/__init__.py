"""Experiments of the KOIL paper."""
