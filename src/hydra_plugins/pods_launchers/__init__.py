"""The launchers by which Hydra hands the jobs of a sweep to `pods.launch`."""
