"""The database `shop`: an existing system beside Headwater, filled and changed by ordinary SQL."""
