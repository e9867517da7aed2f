# The operator's image: one static program in an otherwise empty root file system.
#
# From the sources (needs a registry that has the official Rust image):
#   docker build -t shardwright .
# From a binary that is already built, with no registry at all; the binary must lie in the context as "shardwright":
#   RUSTFLAGS='-C target-feature=+crt-static' cargo build --release --target x86_64-unknown-linux-gnu
#   buildah bud --target prebuilt -t shardwright -f Dockerfile target/x86_64-unknown-linux-gnu/release

FROM scratch AS prebuilt
ARG BINARY=shardwright
COPY --chown=0:0 --chmod=0755 ${BINARY} /shardwright
USER 65532:65532
ENTRYPOINT ["/shardwright"]

FROM docker.io/library/rust:1.95-slim-bookworm AS build
ARG TARGET=x86_64-unknown-linux-gnu
WORKDIR /source
COPY Cargo.toml Cargo.lock ./
COPY src src
COPY e2e/Cargo.toml e2e/Cargo.toml
COPY e2e/src e2e/src
# With a target named, the static C library is for the program alone and not for the build scripts and macros.
RUN RUSTFLAGS='-C target-feature=+crt-static' cargo build --release --locked --package shardwright --target "$TARGET" \
 && cp "target/$TARGET/release/shardwright" /shardwright

FROM scratch
COPY --from=build --chown=0:0 --chmod=0755 /shardwright /shardwright
USER 65532:65532
ENTRYPOINT ["/shardwright"]
