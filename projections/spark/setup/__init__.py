"""What Spark needs on a machine: Java, jars, an archive of its classes."""
