"""What to draw: learning curves folded over seeds, as pictures or in the terminal."""
