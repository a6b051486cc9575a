"""A generator reasoning in stages against a discriminator that writes tests."""
