"""Run folders in, one `Study` out: read, checked, named, filtered."""
