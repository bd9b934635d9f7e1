"""Posts and followers: the newest posts of everyone a reader follows."""
