# memwatch as an image: docs/kubernetes.md has its manifests, docs/operations.md#containers says how it is run elsewhere.
# A tag can be moved. For builds that can be repeated name its digest too:
#   docker build -t memwatch --build-arg BASE=python:3.13.12-slim-trixie@sha256:... .
ARG BASE=python:3.13.12-slim-trixie

FROM ${BASE} AS build
WORKDIR /src
COPY requirements-build.txt requirements-image.txt ./
# Wheels alone, each with a known hash: no compiler, and no code of a package runs but that of the build's own backend.
RUN python -m venv --without-pip /opt/memwatch \
 && python -m venv --without-pip /opt/backend \
 && install="python -m pip --no-cache-dir install --require-hashes --only-binary=:all:" \
 && PIP_PYTHON=/opt/memwatch $install --no-compile -r requirements-image.txt \
 && PIP_PYTHON=/opt/backend $install -r requirements-build.txt
COPY . .
# Bytecode is compiled once, here, and does not ask for the time of its source: it is the same in each build.
RUN /opt/backend/bin/hatchling build -t wheel -d /wheels \
 && python -m pip --python /opt/memwatch install --no-index --no-deps --no-compile /wheels/*.whl \
 && /opt/memwatch/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/memwatch/lib

FROM ${BASE}
LABEL org.opencontainers.image.title="memwatch" \
      org.opencontainers.image.description="Out-of-process memory watchdog for long training runs" \
      org.opencontainers.image.licenses="Apache-2.0"
# Nothing is installed into an image that runs. Whoever it runs as keeps the history in /var/lib/memwatch: a trainer's
# user, or one that the cluster makes up.
RUN python -m pip uninstall --yes pip && install -d -m 1777 /var/lib/memwatch
COPY --from=build /opt/memwatch /opt/memwatch
ENV PATH=/opt/memwatch/bin:$PATH PYTHONDONTWRITEBYTECODE=1 XDG_STATE_HOME=/var/lib
USER 65532:65532
EXPOSE 9877
VOLUME /var/lib/memwatch
# For `--listen none`, another port, TLS or passwords, run it with --no-healthcheck or a check of your own.
HEALTHCHECK --interval=30s --timeout=10s --start-period=10s CMD ["python", "-ISc", "import socket; s = socket.create_connection(('127.0.0.1', 9877), 5); s.sendall(b'GET /-/healthy HTTP/1.0\\r\\n\\r\\n'); raise SystemExit(s.recv(12)[9:] != b'200')"]
ENTRYPOINT ["memwatch"]
CMD ["serve", "--config", "/etc/memwatch/memwatch.yaml"]
