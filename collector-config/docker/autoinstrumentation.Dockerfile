# The image that the OpenTelemetry Operator copies into pods (spec.python.image in kubernetes/instrumentation.yaml),
# with otel-loopeval in it: pods get loop health without a change of their own images.
#
#   docker build -f autoinstrumentation.Dockerfile -t registry.example.com/otel-loopeval-python:3.13 .
#
# Some packages hold compiled code: PYTHON must be the minor version that the pods run, and the pods' images
# must be built on glibc (Debian, Ubuntu, Red Hat; not Alpine).

ARG PYTHON=3.13
FROM python:${PYTHON}-slim AS build
# Add the instrumentations that your programs need besides, such as opentelemetry-instrumentation-httpx.
RUN pip install --no-cache-dir --target /autoinstrumentation \
    "otel-loopeval[auto]" \
    opentelemetry-instrumentation-threading \
    opentelemetry-instrumentation-asyncio

# The Operator runs `cp -r /autoinstrumentation/. …` in it, as any user.
FROM busybox:1.37.0
COPY --from=build /autoinstrumentation /autoinstrumentation
RUN chmod -R go+rX /autoinstrumentation
