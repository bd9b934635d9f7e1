"""How fast it is: JSON lines, each with the same work written by hand as the floor where there is one."""
