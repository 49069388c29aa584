"""A `Study` in, numbers out: outcomes, curves, tables, statistics."""
