"""What can be said of the problems without their records."""
