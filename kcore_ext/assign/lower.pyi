"""From value objects to arrays and back. Compiled code only."""
