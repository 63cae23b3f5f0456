"""There are no models: the tables are Penstock's own. Django sends post_migrate only to applications with this module."""
