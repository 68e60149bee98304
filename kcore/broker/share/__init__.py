"""Share partitions on their leader (KIP-932): acquiring, acknowledging, locks, and the sessions of share consumers."""
