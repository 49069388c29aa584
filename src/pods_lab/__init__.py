"""Studies that stand on the harness: each is a package with a `verb.py`.

`pods` imports none of them: it finds the verbs by the entry points in pyproject.toml.

`plan` fits a cost model to finished runs, `advise` says which n and m pay on a machine, `probe`
measures how well rules estimate the gradient, `published` reads the logs that the PODS authors
released, and `audit` those of any trainer. They use everything of `pods` below its command line.
"""
