"""Streams of rows: sources, generators, windows and honest measuring."""
