"""Journals as Parquet segments: how rows become columns, and how a segment reaches the landing folder."""
