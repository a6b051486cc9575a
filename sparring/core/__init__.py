"""The contract: types, games, tables, collection, seeds. Standard library only."""
