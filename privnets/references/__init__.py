"""What a user names in a study: data sets, models, problems, modules and functions.

`DATA_FORMS` of `data`, `MODEL_FORMS` and `NETWORK_FORMS` of `models`, and `PROBLEM_FORMS` of
`problems` list all forms of such a reference. `scorers` reads the user's utilities, `experiments`
the user's experiments.
"""
