"""Schema of the store, written for SQLite and translated for PostgreSQL."""

from __future__ import annotations

RELEASED_VERSION, SCHEMA_VERSION = 1, 8  # versions of the stores of version 0.2 and of this version
# Tables of version 0.2.
RELEASED_SCHEMA = """
CREATE TABLE models (name TEXT PRIMARY KEY, spec TEXT NOT NULL, at REAL NOT NULL) STRICT;
CREATE TABLE events (
  model TEXT NOT NULL, version INTEGER NOT NULL, at REAL NOT NULL, kind TEXT NOT NULL, body BLOB NOT NULL,
  PRIMARY KEY (model, version)) STRICT, WITHOUT ROWID;
CREATE TABLE snapshots (
  model TEXT NOT NULL, version INTEGER NOT NULL, at REAL NOT NULL, digest TEXT NOT NULL, body BLOB NOT NULL,
  PRIMARY KEY (model, version)) STRICT;
CREATE TABLE chunks (
  chunk INTEGER PRIMARY KEY AUTOINCREMENT, model TEXT NOT NULL, n INTEGER NOT NULL, retired INTEGER NOT NULL,
  body BLOB NOT NULL) STRICT;
CREATE INDEX chunks_by_model ON chunks (model);
CREATE TABLE row_index (
  model TEXT NOT NULL, id TEXT, subject TEXT, chunk INTEGER NOT NULL, position INTEGER NOT NULL) STRICT;
CREATE UNIQUE INDEX rows_by_id ON row_index (model, id) WHERE id IS NOT NULL;
CREATE INDEX rows_by_subject ON row_index (model, subject) WHERE subject IS NOT NULL;
CREATE INDEX rows_by_chunk ON row_index (chunk);
CREATE TABLE waiting (
  model TEXT NOT NULL, id TEXT NOT NULL, at REAL NOT NULL, subject TEXT, body BLOB NOT NULL,
  PRIMARY KEY (model, id)) STRICT, WITHOUT ROWID;
CREATE INDEX waiting_by_subject ON waiting (model, subject) WHERE subject IS NOT NULL;
CREATE TABLE answers (
  model TEXT NOT NULL, key TEXT NOT NULL, fingerprint TEXT NOT NULL, body TEXT NOT NULL, at REAL NOT NULL,
  PRIMARY KEY (model, key)) STRICT, WITHOUT ROWID;
CREATE TABLE points (model TEXT NOT NULL, at REAL NOT NULL, row INTEGER NOT NULL, body TEXT NOT NULL) STRICT;
CREATE INDEX points_by_time ON points (model, at);
CREATE TABLE certificates (
  model TEXT NOT NULL, version INTEGER NOT NULL, at REAL NOT NULL, body TEXT NOT NULL) STRICT;
"""

# Additions since then. They may only add tables, columns and indexes.
ADDITIONS = """
CREATE TABLE answer_index (model TEXT NOT NULL, key TEXT NOT NULL, id TEXT, subject TEXT) STRICT;
CREATE INDEX answers_by_id ON answer_index (model, id);
CREATE INDEX answers_by_subject ON answer_index (model, subject) WHERE subject IS NOT NULL;
CREATE INDEX answers_by_key ON answer_index (model, key);
ALTER TABLE chunks ADD COLUMN at REAL;
ALTER TABLE chunks ADD COLUMN batch TEXT;
CREATE INDEX chunks_by_batch ON chunks (model, batch) WHERE batch IS NOT NULL;
CREATE TABLE former_models (name TEXT PRIMARY KEY, version INTEGER NOT NULL) STRICT;
CREATE TABLE audit (
  number INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, model TEXT NOT NULL, verb TEXT NOT NULL,
  body TEXT NOT NULL) STRICT;
CREATE INDEX audit_by_model ON audit (model, number);
CREATE TABLE quarantine (
  number INTEGER PRIMARY KEY AUTOINCREMENT, model TEXT NOT NULL, at REAL NOT NULL, id TEXT, subject TEXT,
  reason TEXT NOT NULL, body BLOB NOT NULL) STRICT;
CREATE INDEX quarantine_by_model ON quarantine (model, number);
CREATE INDEX answers_by_time ON answers (model, at);
CREATE TABLE learners (pid INTEGER PRIMARY KEY, url TEXT NOT NULL) STRICT;
CREATE INDEX audit_by_time ON audit (at);
CREATE TABLE positions (
  model TEXT NOT NULL, topic TEXT NOT NULL, part TEXT NOT NULL, position TEXT NOT NULL,
  PRIMARY KEY (model, topic, part)) STRICT;
CREATE TABLE early_labels (
  model TEXT NOT NULL, id TEXT NOT NULL, at REAL NOT NULL, label TEXT NOT NULL, reason TEXT,
  PRIMARY KEY (model, id)) STRICT;
CREATE TABLE answer_groups (
  number INTEGER PRIMARY KEY AUTOINCREMENT, model TEXT NOT NULL, at REAL NOT NULL, n INTEGER NOT NULL,
  keys BLOB NOT NULL, body BLOB NOT NULL) STRICT;
CREATE INDEX answer_groups_by_time ON answer_groups (model, at);
CREATE TABLE chunk_keys (chunk INTEGER PRIMARY KEY, model TEXT NOT NULL, keys BLOB NOT NULL) STRICT;
CREATE INDEX chunk_keys_by_model ON chunk_keys (model);
"""
_POSTGRES_WORDS = (
    ("INTEGER PRIMARY KEY AUTOINCREMENT", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"),
    (" INTEGER", " BIGINT"),
    (" REAL", " DOUBLE PRECISION"),
    (" BLOB", " BYTEA"),
    (") STRICT, WITHOUT ROWID", ")"),
    (") STRICT", ")"),
)


def postgres_schema() -> str:
    """Return the complete schema in the SQL dialect of PostgreSQL."""
    schema = RELEASED_SCHEMA + ADDITIONS
    for ours, theirs in _POSTGRES_WORDS:
        schema = schema.replace(ours, theirs)
    return schema
