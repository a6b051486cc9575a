"""What the measures of a matching are called: title, explanation, whether it is a share."""

MEASURES: dict[str, tuple[str, str, bool]] = {
    "score": ("Score", "Value of what was agreed on, of the pooled optimum; 0 without.", True),
    "agreement": ("Games that end in agreement", "The others score nothing.", True),
    "agreed_score": ("Score of the games that agreed", "Of the pooled optimum.", True),
    "agreed_turns": ("Turns to agreement", "Of the games that agreed.", False),
    "error_rate": ("Turns lost to errors", "Share of turns without a valid action.", True),
    "over_greedy": (
        "Score above either player alone",
        "Against the greedy bound of the same tables; above 0 they told each other something.",
        False,
    ),
    "over_greedy_95": ("Score above either player alone, ±", "95 % interval.", False),
    "bound_random": ("Bound: random agreement", "The mean over all matchings.", True),
    "bound_greedy": ("Bound: greedy on own view", "What either player reaches alone.", True),
    "bound_pooling": ("Bound: perfect pooling", "The best by what both see.", True),
    "cells_private": ("Cells that one player alone sees", "Per game.", False),
    "cells_mentioned": ("Cells told", "Given a value in a message, per game.", False),
    "cells_correct": ("Cells told correctly", "By a player who sees that value.", False),
    "cells_new": ("Cells told that the other does not see", "And correct.", False),
    "cells_used": ("Cells told and used", "Part of what was agreed on.", False),
}
