"""What a request says: its headers, body and parameters, read and checked."""
