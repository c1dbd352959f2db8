"""The API's endpoints, except the two in `queries`. Each resource has a module with its schemas."""
