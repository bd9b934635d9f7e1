"""How the parts run together: the local stack of real servers and Headwater's processes; import `Stack` from here."""
