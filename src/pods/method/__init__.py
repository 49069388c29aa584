"""The method, pure: arrays in, arrays out. No files, no models, no clock."""
