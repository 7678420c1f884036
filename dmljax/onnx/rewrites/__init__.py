"""Rewrites of graphs, which compute the same in fewer or faster nodes."""
