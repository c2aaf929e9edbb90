"""Journeys of a user on a real cluster: the commands as they are typed, against containers that really run."""
