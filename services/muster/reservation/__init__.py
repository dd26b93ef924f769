"""The program inside a reservation pod: it holds a card and says which."""
