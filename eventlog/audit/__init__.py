"""What operators did, in the topic `audit`. Imported by command lines; may import the log."""
