"""The broker's APIs, one a file, named after the API.

`kcore.broker.control.ControlPlane.apis` and `kcore.broker.data_plane.data_apis` build them.
"""
