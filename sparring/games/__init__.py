"""Small games with exact measures, one file each."""

from sparring.core.plugin import Plugin

plugin = Plugin(
    "games",
    package=__name__,
    games={
        "tictactoe": "sparring.games.tictactoe:TicTacToe",
        "kuhn": "sparring.games.kuhn:KuhnPoker",
        "negotiation": "sparring.games.negotiation:SimpleNegotiation",
    },
)
