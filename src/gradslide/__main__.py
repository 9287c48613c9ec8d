"""`python -m gradslide`."""

from gradslide.cli import main

main()
