"""Plans: the points of a study, and the packs that train them."""
