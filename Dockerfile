# memwatch as a sidecar: share the trainer's PID namespace and mount its log read-only. Start the trainer's container
# with --init: PID 1 is never watched.
#   docker run --pid=container:trainer --cap-add=KILL -v /runs:/runs:ro memwatch --match 'main\.py' --log /runs/main.log
FROM python:3.13-slim AS build
WORKDIR /src
COPY . .
RUN pip wheel --no-cache-dir --wheel-dir /wheels '.[auth]'

FROM python:3.13-slim
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --no-index --find-links /wheels 'memwatch[auth]' && rm -rf /wheels
EXPOSE 9877
ENTRYPOINT ["memwatch", "--listen", "0.0.0.0:9877"]
