"""The HTTP server and who may ask it: routes, TLS, client certificates, passwords.

Start reading in `server`, then `routes`.
"""
