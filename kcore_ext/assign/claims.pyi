"""Claims: which partitions members say they own. Compiled code only."""
