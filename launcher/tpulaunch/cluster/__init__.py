"""The one room that talks to a cluster; reading, explaining and deciding in it are pure functions over plain dicts."""
