"""What other frameworks call, by this library: one module for each, imported by its plugin loader or by you (docs/integrations.md)."""
