"""The PODS authors' released logs, read into the same tables as our own runs."""
