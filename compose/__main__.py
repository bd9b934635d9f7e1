"""`headwater stack`: the local stack's command line."""

from compose.cli import main

main()
