"""Membership attacks, which score trials (a model and a record) and decide.

An attack is a subclass of `Attack` with one line in `privnets.membership.config.ATTACKS`.
"""

from privnets.membership.attacks.base import Attack, Guesses, Population, Trials

__all__ = ["Attack", "Guesses", "Population", "Trials"]
