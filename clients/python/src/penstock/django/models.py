"""None: the tables are Penstock's own. Django tells only applications with this module that a migration has ended."""
