"""Where pods go: feasibility, the greedy, the exact model, expansion to cards, and the validator that trusts none of them."""
