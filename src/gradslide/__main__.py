"""`python -m gradslide`."""

from gradslide.cli.main import main

main()
