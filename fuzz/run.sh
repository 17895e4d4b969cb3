#!/usr/bin/env bash
# Fuzzes the targets of fuzz/src/lib.rs under coverage, for an equal share of the time each, as many at a time as there are
# cores.
#
#   fuzz/run.sh SECONDS [TARGET…]
#
# SEED=n has libFuzzer try much the same as with the same n before.
#
# Each begins with what is in fuzz/corpus, which is committed, and with what earlier runs have found in target/fuzz/corpus.
# An input that breaks a promise, takes ten seconds, or takes 2 GiB, is left in target/fuzz/found; this then ends with an
# error. Into fuzz/corpus it goes together with its cure. To look at one:
#
#   cargo run -p fuzz -- TARGET FILE
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:?usage: fuzz/run.sh SECONDS [TARGET…]}
shift
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(ls fuzz/corpus)

# The targets that are guests of the host's KVM.
if [ ! -w /dev/kvm ]; then
    case ",${LAMBSWOOL_REQUIRE:-}," in
    *,kvm,*)
        echo "error: no /dev/kvm, and LAMBSWOOL_REQUIRE says that this machine has it"
        exit 1
        ;;
    esac
    echo "SKIPPED: no /dev/kvm: system_calls, unikernels"
    mapfile -t targets < <(printf '%s\n' "${targets[@]}" | grep -vxE 'system_calls|unikernels')
fi

# What `cargo fuzz` asks the compiler for, in as far as a stable one can do it: counters of edges, and the operands of
# comparisons. No sanitizer of memory: code that is not `unsafe` has no use for one.
triple=$(rustc -vV | sed -n 's/^host: //p')
flags=(--cfg fuzzing -C passes=sancov-module)
for option in level=4 inline-8bit-counters pc-table trace-compares; do
    flags+=(-C "llvm-args=-sanitizer-coverage-$option")
done
RUSTFLAGS="${flags[*]} ${FUZZ_RUSTFLAGS:-}" \
    cargo build --locked -p fuzz --profile fuzz --target "$triple" --target-dir target/fuzz

cores=$(nproc)
share=$((seconds * cores / ${#targets[@]}))
share=$((share > 1 ? share : 1))
found=target/fuzz/found logs=target/fuzz/logs
mkdir -p "$found" "$logs"
export FUZZ_PROGRAM="target/fuzz/$triple/fuzz/fuzz" FUZZ_SHARE=$share FUZZ_FOUND=$found FUZZ_LOGS=$logs

one() {
    local target=$1 dictionary=()
    mkdir -p "target/fuzz/corpus/$target"
    rm -f "$FUZZ_LOGS/$target.status"
    [ ! -f "fuzz/dictionaries/$target" ] || dictionary=("-dict=fuzz/dictionaries/$target")
    FUZZ_TARGET=$target timeout --kill-after=10 $((FUZZ_SHARE + 120)) "$FUZZ_PROGRAM" \
        "target/fuzz/corpus/$target" "fuzz/corpus/$target" "${dictionary[@]}" \
        -max_total_time="$FUZZ_SHARE" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$FUZZ_FOUND/$target-" ${SEED:+"-seed=$SEED"} >"$FUZZ_LOGS/$target" 2>&1
    echo $? >"$FUZZ_LOGS/$target.status"
}
export -f one
echo "fuzzing ${#targets[@]} targets for $share s each, $cores at a time"
printf '%s\0' "${targets[@]}" | xargs -0 -P "$cores" -I{} bash -c 'set +e; one {}'

failed=0
printf '%-14s %12s %10s %8s %8s  %s\n' target executions new edges MiB ''
for target in "${targets[@]}"; do
    log=$logs/$target
    stat() { sed -n "s/^stat::$1: *//p" "$log" | tail -n1; }
    edges=$(grep -oE 'cov: [0-9]+' "$log" | tail -n1 | cut -d' ' -f2 || true)
    verdict=
    if [ "$(cat "$log.status")" != 0 ]; then
        failed=$((failed + 1))
        verdict="BROKEN: $(sed -n 's/^.*Test unit written to //p' "$log" | tail -n1), told in $log"
    fi
    printf '%-14s %12s %10s %8s %8s  %s\n' "$target" "$(stat number_of_executed_units)" \
        "$(stat new_units_added)" "$edges" "$(stat peak_rss_mb)" "$verdict"
done
[ "$failed" = 0 ] || {
    echo "error: $failed of ${#targets[@]} targets broke; what broke them is in $found"
    exit 1
}
