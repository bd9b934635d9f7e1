"""What tills sell: leaderboards."""
