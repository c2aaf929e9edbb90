# The worker image, one per backend:
#
#   docker build --build-arg BACKEND=jax -t REGISTRY/tpuworker:jax .
#   docker build --build-arg BACKEND=torch-xla --build-arg TORCH_INDEX=URL -t REGISTRY/tpuworker:torch-xla .
#
# BASE_IMAGE   any image with Python 3.11 or newer, pip and venv
# BACKEND      jax | torch-xla
# TORCH_INDEX  index of PyTorch's CPU wheels. Without it torch comes with CUDA libraries of several GB that no TPU host uses.
#
# It runs as user 1000 on a read-only root file system; only /tmp (and /dev/shm) need to be writable.
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS build
ARG BACKEND=jax
ARG TORCH_INDEX=
ENV PIP_NO_CACHE_DIR=1 UV_NO_CACHE=1 UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never
RUN python3 -m venv /opt/build && /opt/build/bin/pip install --quiet uv==0.9.*
WORKDIR /src
# What changes rarely comes first: the libraries, from the locked versions. The `tpu` extras bring the one libtpu that the
# backend was built against. Byte code is compiled here, since nothing can be written when a worker starts.
COPY pyproject.toml requirements.lock ./
RUN set -eu; \
    case "$BACKEND" in \
      jax) accelerator="jax[tpu]" ;; \
      torch-xla) accelerator="torch_xla[tpu]" ;; \
      *) echo "BACKEND is '$BACKEND'; it must be jax or torch-xla" >&2; exit 2 ;; \
    esac; \
    # CPU wheels carry other hashes than the locked ones of the same version.
    if [ -n "$TORCH_INDEX" ]; then index="--index $TORCH_INDEX --no-verify-hashes"; else index=""; fi; \
    /opt/build/bin/uv venv --quiet --python "$(command -v python3)" /opt/tpuworker; \
    /opt/build/bin/uv pip install --quiet --compile-bytecode --python /opt/tpuworker/bin/python $index \
      --constraint requirements.lock --requirements pyproject.toml --extra "$BACKEND" "$accelerator" "dumb-init==1.2.5.*"
COPY README.md LICENSE ./
COPY launcher launcher
COPY worker worker
COPY manifests manifests
RUN /opt/build/bin/uv pip install --quiet --compile-bytecode --no-deps --python /opt/tpuworker/bin/python . \
 # `tpuworker` on PATH starts under an init, also where a pod names it as its command: the init reaps orphans, hands signals
 # on to the whole process group, and ends with the worker's exit code.
 && mkdir -p /opt/tpuworker/entry \
 && printf '#!/bin/sh\nexec /opt/tpuworker/bin/dumb-init -- /opt/tpuworker/bin/tpuworker "$@"\n' > /opt/tpuworker/entry/tpuworker \
 && chmod 0755 /opt/tpuworker/entry/tpuworker

FROM ${BASE_IMAGE}
ARG BACKEND=jax
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="tpuworker" \
      org.opencontainers.image.description="Worker of tpulaunch: proves the data before the first step, then trains" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      dev.tpulaunch.backend="${BACKEND}"
COPY --from=build /opt/tpuworker /opt/tpuworker
ENV PATH=/opt/tpuworker/entry:/opt/tpuworker/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp
WORKDIR /tmp
USER 1000:1000
ENTRYPOINT ["tpuworker"]
