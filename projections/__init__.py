"""The read side: views declared once, run live and in bulk by Spark. May import `commands` and `eventlog`."""
