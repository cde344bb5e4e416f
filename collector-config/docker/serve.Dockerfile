# otel-loopeval serve as an image.
#
#   docker build -f serve.Dockerfile -t registry.example.com/otel-loopeval-serve:0.1.0 .
#   docker run --rm -p 127.0.0.1:4317:4317 -p 127.0.0.1:4318:4318 -v loopeval:/data IMAGE
#
# Then send OTLP to http://localhost:4318, and look at the runs there.

FROM python:3.13-slim

RUN pip install --no-cache-dir "otel-loopeval[server,cost]"

# The store is for its owner only; a new volume takes this folder's owner.
RUN useradd --uid 10001 --create-home serve && install -d -o serve /data
USER serve
WORKDIR /data
VOLUME /data
EXPOSE 4317 4318

# As a list, so that no shell stands between the server and SIGTERM, at which it judges the runs that are open.
# In a container it has to listen on every address: what is published (above: on loopback only) is for you to say.
ENTRYPOINT ["otel-loopeval", "serve"]
CMD ["--http=0.0.0.0:4318", "--grpc=0.0.0.0:4317", "--insecure", "--store=/data/runs.db"]
