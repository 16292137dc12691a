"""Ready-made operator declarations."""
