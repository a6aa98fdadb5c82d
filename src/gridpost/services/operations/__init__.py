"""What operators ask of any component: is it well, what are its figures, what is its state."""
