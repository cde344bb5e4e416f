# An agent's image with loop health and no change of its code.
#
#   docker build -f app.Dockerfile -t my-agent .
#   docker run --rm -e OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4317 -e OPENAI_API_KEY my-agent

FROM python:3.13-slim

# [auto] brings opentelemetry-distro: without it opentelemetry-instrument sets up no SDK.
RUN pip install --no-cache-dir "otel-loopeval[auto,praisonai]"

RUN useradd --create-home agent
USER agent
WORKDIR /home/agent
COPY app.py .

# service.name and service.version are what dashboards and alerts go by; set the version at each release.
ENV OTEL_SERVICE_NAME=my-agent \
    OTEL_RESOURCE_ATTRIBUTES=service.version=1.0.0,deployment.environment.name=production \
    OTEL_EXPORTER_OTLP_PROTOCOL=grpc \
    OTEL_TRACES_EXPORTER=otlp \
    OTEL_METRICS_EXPORTER=otlp \
    OTEL_LOGS_EXPORTER=none \
    OTEL_METRIC_EXPORT_INTERVAL=15000

# As a list, so that no shell stands between the program and SIGTERM: on `docker stop` open runs are recorded as
# interrupted, and what has not been sent is.
CMD ["opentelemetry-instrument", "python", "app.py"]
