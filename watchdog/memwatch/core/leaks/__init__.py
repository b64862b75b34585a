"""leaks."""
