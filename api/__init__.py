"""The endpoints of the API beyond the two of `queries.api`: a module for each resource, with its schemas."""
