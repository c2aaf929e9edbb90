# The worker image, one per backend:
#
#   docker build --build-arg BACKEND=jax -t REGISTRY/tpuworker:jax .
#   docker build --build-arg BACKEND=torch-xla --build-arg TORCH_INDEX=URL -t REGISTRY/tpuworker:torch-xla .
#
# BASE_IMAGE   any image with Python 3.11 or newer, pip and venv
# BACKEND      jax | torch-xla
# TORCH_INDEX  index of PyTorch's CPU wheels; without it torch brings several GB of CUDA libraries no TPU host uses
#
# It runs as user 1000 on a read-only root file system; only /tmp and /dev/shm need to be writable.
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS build
ARG BACKEND=jax
ARG TORCH_INDEX=
# Certificates come from the base's store, so a company's own authority added there is trusted. The cache lies beside the
# target, where files are linked instead of copied, and stays in this stage.
ENV UV_CACHE_DIR=/opt/build/cache UV_NATIVE_TLS=1 UV_PYTHON_DOWNLOADS=never PIP_NO_CACHE_DIR=1
RUN python3 -m venv /opt/build && /opt/build/bin/pip install --quiet "uv==0.9.*" \
 && /opt/build/bin/uv venv --quiet --python "$(command -v python3)" /opt/tpuworker
WORKDIR /src
# What changes rarely comes first: the libraries, from the locked versions. The `tpu` extra brings the one libtpu that the
# backend was built against. What only the launcher imports stays out. Byte code is compiled here, since a worker can write
# none when it starts.
COPY pyproject.toml requirements.lock ./
RUN set -eu; \
    case "$BACKEND" in \
      jax) runtime="jax[tpu]" ;; \
      torch-xla) runtime="torch_xla[tpu]" ;; \
      *) echo "BACKEND is '$BACKEND'; it must be jax or torch-xla" >&2; exit 2 ;; \
    esac; \
    printf 'kubernetes\ntyper\n' > /opt/build/launcher-only; \
    set -- --constraint requirements.lock --excludes /opt/build/launcher-only; \
    # CPU wheels carry other hashes than the locked ones of the same version.
    if [ -n "$TORCH_INDEX" ]; then set -- "$@" --index "$TORCH_INDEX" --no-verify-hashes; fi; \
    /opt/build/bin/uv pip install --quiet --compile-bytecode --python /opt/tpuworker/bin/python "$@" \
      --requirements pyproject.toml --extra "$BACKEND" "$runtime"
COPY README.md LICENSE ./
COPY launcher launcher
COPY worker worker
COPY manifests manifests
RUN /opt/build/bin/uv pip install --quiet --compile-bytecode --no-deps --python /opt/tpuworker/bin/python .

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
ENV PATH=/opt/tpuworker/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp
# Where training code of an image built on this one belongs: `FROM tpuworker` and `COPY my_project /workspace/my_project`.
WORKDIR /workspace
USER 1000:1000
# No init in front: tpuworker is one. As process 1 it reaps, hands signals on to the whole process group, ends with the
# worker's exit code, and writes the last words of a worker that was killed.
ENTRYPOINT ["tpuworker"]
