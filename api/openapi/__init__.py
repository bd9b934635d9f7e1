"""The OpenAPI document, and the models of its schemas."""
