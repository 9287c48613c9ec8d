"""What a run returns: `Solution`, `History`, `Costs`, `Status`, `Certificate`, and how they are shown.

Plain records that can be saved, loaded, tabulated and plotted. How their numbers are found belongs in `engine` and
`theory`.
"""
