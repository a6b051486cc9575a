"""What runs inside the jail. Stdlib only, relative imports only: it is mounted there by itself."""
