#!/usr/bin/env bash
# Fuzzes the HTTP API of a real worker: schemathesis sends what `/openapi.json` says that it takes, and what it says that it
# does not, and compares the answers with those that it describes (tests/tests/http_api/main.rs; as root, in real containers).
#
#   fuzz/api.sh SECONDS      below 120: a fixed number of requests instead
#
# SEED=n has it try much the same as with the same n before. What broke is told with the `curl` that repeats it.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:?usage: fuzz/api.sh SECONDS}
cargo build --workspace --locked
export LAMBSWOOL_FUZZ_SEED=${SEED:-}
if [ "$seconds" -ge 120 ]; then
    export LAMBSWOOL_FUZZ_SECONDS=$seconds
    echo "fuzzing the HTTP API for $seconds s"
else
    # In less it has hardly begun on a slow machine.
    echo "fuzzing the HTTP API as in make test: $seconds s are too few for more"
fi
cargo test --locked -p e2e --test http_api -- --nocapture
