"""What is kept and who is met."""
