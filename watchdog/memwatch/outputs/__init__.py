"""What people and machines look at; all of it reads the one snapshot."""
