# Only compiled modules use this module, by its .pxd.
