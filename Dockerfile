# The package with its sandbox. torch is the CUDA build, as PyPI has it; for a CPU-only image, a tenth of the
# size, name PyTorch's index of CPU builds: `docker build --build-arg TORCH_INDEX=URL .`
FROM python:3.12-slim-bookworm

ARG TORCH_INDEX=

# bubblewrap is the judge's jail. It needs user namespaces: run with
# `--security-opt seccomp=unconfined` (or a profile that allows them), or set `judge.sandbox=unsafe`.
RUN apt-get update \
    && apt-get install -y --no-install-recommends bubblewrap=0.8.* \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/sparring
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY sparring sparring
# The package is the one beside this file; constraints.txt pins what it needs.
# hadolint ignore=DL3013
RUN pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch==2.13.0 \
    && pip install --no-cache-dir -c constraints.txt .

RUN useradd --create-home --uid 1000 player
USER 1000
WORKDIR /home/player
ENTRYPOINT ["sparring"]
CMD ["--help"]
