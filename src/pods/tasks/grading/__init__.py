"""The answer and the form of a completion, and the PODS authors' lenient verdict.

Whether an answer equals its gold is decided in the package `mathgrade`. Start reading in
`answers.py`.
"""
