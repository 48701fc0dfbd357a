"""What can be wrong with data, as one exception."""


class DataError(Exception):
    """A data set is unknown, absent, truncated or altered, or could not be fetched.

    The message stands alone: it says which file, where it was looked for, and how to get it.
    """
