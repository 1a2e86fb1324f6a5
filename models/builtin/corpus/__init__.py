"""The text on which quern's built-in model is trained: a seeded generator of stories, questions and instructions.

`python3 -m corpus --help` (from models/builtin/) writes documents; check.py asks what was kept out of them.
"""
