"""The HTTP server and who may use it: routes, TLS, client certificates, passwords.

Start reading in `server`, then `routes`.
"""
