"""What outlives memwatch: the run's events and samples on disk."""
