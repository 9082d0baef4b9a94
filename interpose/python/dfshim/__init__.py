"""What dfshim offers to Python programs."""
