# The platform as an image, for CPUs or for NVIDIA's GPUs:
#   docker build -t registry.example.org/tune:0.1.0 .
#   docker build -t registry.example.org/tune:0.1.0-cuda --build-arg TORCH_INDEX=https://pypi.org/simple .
# CUDA's libraries come with PyTorch's packages; the machine has the driver.
FROM python:3.11.10-slim-bookworm AS build
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
WORKDIR /src
RUN python -m venv /venv
COPY constraints.txt ./
RUN /venv/bin/pip install --no-cache-dir --constraint constraints.txt --index-url "$TORCH_INDEX" torch
COPY pyproject.toml README.md LICENSE ./
COPY search_spaces search_spaces
COPY results results
COPY trainables trainables
COPY tuning tuning
RUN /venv/bin/pip install --no-cache-dir --constraint constraints.txt ".[jobs,monitoring]" psycopg2-binary
RUN /venv/bin/pip install --no-cache-dir --no-deps --force-reinstall .

FROM python:3.11.10-slim-bookworm
# KubeRay's probes call wget.
RUN apt-get update && apt-get install --no-install-recommends -y wget && rm -rf /var/lib/apt/lists/*
RUN useradd --uid 1000 --create-home tune
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
RUN tune --version
USER 1000:1000
WORKDIR /app
CMD ["tune", "--help"]
