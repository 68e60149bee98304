"""The broker's APIs, one a file, named after the API."""
