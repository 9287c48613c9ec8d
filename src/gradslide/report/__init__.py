"""Self-contained HTML pages of runs, comparisons and reproductions, and live pages of runs in
progress.

`folder` finds the results, `run`, `comparison`, `reproduction` and `agent` turn them into documents
of plain lists and numbers, `page` puts these into one HTML file with the scripts in `assets`,
`live` and `server` serve a page while a run goes on. Nothing is computed here that a run has not
recorded.
"""
