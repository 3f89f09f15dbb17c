"""The routes, a module for each resource."""
