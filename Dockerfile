# The worker image, one per backend:
#
#   docker build --build-arg BACKEND=jax -t REGISTRY/tpuworker:jax .
#   docker build --build-arg BACKEND=torch-xla --build-arg TORCH_INDEX=URL -t REGISTRY/tpuworker:torch-xla .
#
# BASE_IMAGE   any image with Python 3.11 or newer, pip and venv; for torch-xla with Python's shared library as well
# BACKEND      jax | torch-xla
# RUNTIME      tpu | cpu: cpu leaves libtpu out (0.7 GB) and opens the CPU wherever it runs
# TORCH_INDEX  index of PyTorch's CPU wheels; without it torch brings 3.7 GB of CUDA that it loads and no TPU host uses
#
# It runs as user 1000 on a read-only root file system; only /tmp and /dev/shm need to be writable.
ARG BASE_IMAGE=python:3.11-slim-bookworm
ARG RUNTIME=tpu

# What the worker needs, in a file that changes with nothing else in pyproject.toml. What only the launcher imports stays
# out. The `tpu` extra of a backend brings the one libtpu it was built against.
FROM ${BASE_IMAGE} AS requirements
ARG BACKEND=jax
ARG RUNTIME=tpu
COPY pyproject.toml /
RUN case "$BACKEND/$RUNTIME" in \
      jax/cpu | torch-xla/cpu) library= ;; \
      jax/tpu) library="jax[tpu]" ;; \
      torch-xla/tpu) library="torch_xla[tpu]" ;; \
      *) echo "BACKEND is '$BACKEND' and RUNTIME '$RUNTIME'; they must be jax or torch-xla, tpu or cpu" >&2; exit 2 ;; \
    esac \
 && python3 -c 'import re, sys, tomllib; \
project = tomllib.load(open("/pyproject.toml", "rb"))["project"]; \
extras = project["optional-dependencies"]; \
wanted = project["dependencies"] + extras["worker"] + extras[sys.argv[1]] + sys.argv[2:]; \
others = {"kubernetes", "typer", "rich", "jinja2", project["name"]}; \
print(*(each for each in wanted if re.match("[A-Za-z0-9_.-]+", each)[0] not in others), sep="\n")' \
      "$BACKEND" $library > /requirements.txt

# The libraries, from the locked versions, in a layer that changes only with them: a new build of the worker pushes and
# pulls a few hundred kB.
FROM ${BASE_IMAGE} AS libraries
ARG TORCH_INDEX=
# Certificates come from the base's store, so a company's own authority added there is trusted. The cache lies beside the
# target, where files are linked instead of copied, and stays in this stage.
ENV UV_CACHE_DIR=/opt/build/cache UV_NATIVE_TLS=1 UV_PYTHON_DOWNLOADS=never PIP_NO_CACHE_DIR=1
# A slow network or a busy machine is no fault: uv gives a read 30 s and a file 60 s.
ENV UV_HTTP_TIMEOUT=600 UV_COMPILE_BYTECODE_TIMEOUT=1800
RUN python3 -m venv /opt/build && /opt/build/bin/pip install --quiet "uv==0.9.*" \
 && /opt/build/bin/uv venv --quiet --python "$(command -v python3)" /opt/tpuworker
WORKDIR /src
COPY requirements.lock ./
COPY --from=requirements /requirements.txt ./
# CPU wheels carry other hashes than the locked ones of the same version. Byte code is compiled here, since a worker can
# write none when it starts.
RUN if [ -n "$TORCH_INDEX" ]; then set -- --index "$TORCH_INDEX" --no-verify-hashes; fi \
 && /opt/build/bin/uv pip install --quiet --compile-bytecode --python /opt/tpuworker/bin/python \
      --constraint requirements.lock --requirements requirements.txt "$@" \
 && echo /opt/project > "$(/opt/tpuworker/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/project.pth"
# The usual wheel of PyTorch is linked against CUDA. What of it is not loaded when torch starts is opened on a GPU only,
# and goes. That torch_xla starts with this base is seen here, and not first in a pod.
ARG BACKEND=jax
RUN if [ "$BACKEND" = torch-xla ]; then \
      /opt/build/bin/uv pip uninstall --quiet --python /opt/tpuworker/bin/python triton \
   && /opt/tpuworker/bin/python -c 'import pathlib, sysconfig, torch_xla; \
loaded = pathlib.Path("/proc/self/maps").read_text().split(); \
root = pathlib.Path(sysconfig.get_path("purelib")); \
linked = [*root.glob("nvidia/*/lib/*"), *root.glob("torch/lib/libtorch_cuda_*")]; \
[path.unlink() for path in linked if path.is_file() and str(path) not in loaded]'; \
    fi

FROM libraries AS project
COPY pyproject.toml README.md LICENSE ./
COPY launcher launcher
COPY worker worker
COPY manifests manifests
RUN /opt/build/bin/uv pip install --quiet --compile-bytecode --no-deps --python /opt/tpuworker/bin/python \
      --target /opt/project .

FROM ${BASE_IMAGE} AS worker-tpu
COPY --from=libraries /opt/tpuworker /opt/tpuworker
COPY --from=project /opt/project /opt/project
# USER: /etc/passwd names none of the users that a pod may take, and torch asks for a name when it starts.
ENV PATH=/opt/project/bin:/opt/tpuworker/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp \
    USER=tpuworker
# Training code of an image built on this one belongs here: `FROM tpuworker` and `COPY my_project /workspace/my_project`.
WORKDIR /workspace
USER 1000:1000
# No init in front: tpuworker is one. As process 1 it reaps, hands signals on to the whole process group, ends with the
# worker's exit code, and writes the last words of a worker that was killed.
ENTRYPOINT ["tpuworker"]

# Without libtpu a pod that was given chips cannot open them: its variables would promise a TPU that no library serves.
FROM worker-tpu AS worker-cpu
ENV PJRT_DEVICE=CPU

FROM worker-${RUNTIME}
ARG BACKEND=jax
ARG RUNTIME=tpu
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="tpuworker" \
      org.opencontainers.image.description="Worker of tpulaunch: proves the data before the first step, then trains" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      dev.tpulaunch.backend="${BACKEND}" \
      dev.tpulaunch.runtime="${RUNTIME}"
