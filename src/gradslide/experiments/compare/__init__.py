"""Methods against each other: problems x networks x conditions x methods."""
