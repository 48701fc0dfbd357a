"""What a user names in a study: tables, arrays, images, series, models, modules and functions.

`forms` is the table of all forms of such a reference, each with its loader.
"""
