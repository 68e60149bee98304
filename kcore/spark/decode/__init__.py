"""Records of internal topics decoded into typed columns."""
