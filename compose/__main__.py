"""`headwater stack`: the local stack's command line."""

from headwater.compose.cli import main

main()
