# Nothing here is for Python; compiled modules use the .pxd.
