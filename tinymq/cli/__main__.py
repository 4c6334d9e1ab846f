"""`python -m tinymq.cli` is `tinymq`."""

from tinymq.cli import main

main()
