"""`python -m tinymq` is `tinymq`."""

from tinymq.cli import main

main()
