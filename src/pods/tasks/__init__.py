"""Tasks: problems with their answers, prompts, and the functions that grade completions."""
