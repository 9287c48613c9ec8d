"""Self-contained report pages of runs, comparisons and reproductions."""
