"""MariaDB and MySQL: their address, checks, binary log, types, and properties of their connectors."""
