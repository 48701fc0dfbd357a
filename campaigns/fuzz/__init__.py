"""Fuzzing: whatever bytes a file holds, it is read or refused in order.

`python -m campaigns.fuzz TARGET --inputs N --seed S` feeds a reader with inputs made by Hypothesis
(a valid file with a few edits, or a table, document or command line put together at random), or
with `--engine atheris` with inputs that libFuzzer finds by coverage (`pip install -e '.[fuzz]'`).
`campaigns.fuzz.targets` names the readers. What is counted is appended to `campaigns/fuzz/results`.
"""
