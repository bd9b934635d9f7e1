"""Spark's requirements on a machine: Java, jars, an archive of its classes."""
