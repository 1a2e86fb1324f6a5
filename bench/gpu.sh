#!/usr/bin/env bash
# Everything that is to be known of a card, in one command on a machine that has one: bash bench/gpu.sh [--checks] [BUILD]
#
# First the card; then every kernel by the tests that the interpreter runs as well, here on the card; then whole models,
# whose greedy text on the card must be that of the CPU; then a table of speeds. --checks leaves the table out. BUILD is a
# folder made by `meson setup build && ninja -C build`. Golden models are looked for in $QUERN_SHARED, as the tests do.
set -euo pipefail
cd "$(dirname "$0")/.."
speeds=1
if [ "${1:-}" = --checks ]; then
    speeds=0
    shift
fi
build=${1:-build}
quern=$build/cmd/quern
synth=$build/bench/quern-synth
shared=${QUERN_SHARED:-../shared}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

section() {
    printf '\n== %s\n' "$1"
}

section "the card"
$quern device | tee "$work/device"
if grep -q '^gpu  *none' "$work/device"; then
    exit 6
fi
version=$($quern --version)
echo "$version"

section "kernels"
for name in kernels ops matmul; do
    if ! "$build/tests/card_ptx_$name"; then
        failed=$((failed + 1))
    fi
done

# Whether a model's greedy text is the CPU's: text NAME, then the flags that choose a model.
compare() {
    local name=$1
    shift
    if ! "$quern" run "$@" --device cpu --raw --ignore-eos --temp 0 -n 32 -p "$prompt" >"$work/cpu" 2>"$work/why"; then
        printf '%-44s skipped: the CPU says %s\n' "$name" "$(head -n 1 "$work/why")"
        return
    fi
    if ! "$quern" run "$@" --device gpu --raw --ignore-eos --temp 0 -n 32 -p "$prompt" >"$work/gpu" 2>"$work/why"; then
        printf '%-44s FAILED: %s\n' "$name" "$(head -n 1 "$work/why")"
        failed=$((failed + 1))
    elif cmp -s "$work/cpu" "$work/gpu"; then
        printf '%-44s the same text\n' "$name"
    else
        printf '%-44s DIFFERS from byte %s on\n' "$name" "$(cmp "$work/cpu" "$work/gpu" | sed 's/.*byte \([0-9]*\).*/\1/')"
        failed=$((failed + 1))
    fi
}

section "whole models, greedy: the card's text against the CPU's"
prompt="Once upon a time there was a little girl"
compare built-in
for file in "$shared"/models/*.gguf "$shared"/golden/arch/*.gguf "$shared"/golden/quant/*.gguf; do
    if [ -e "$file" ]; then
        compare "$(basename "$file" .gguf)" -m "$file"
    fi
done
for preset in llama-tiny llama-moe-tiny; do
    for type in F32 F16 BF16 Q8_0 Q4_0 Q4_K_M Q6_K; do
        if "$synth" $preset $type "$work/model.gguf" >/dev/null 2>&1; then
            compare "$preset $type" -m "$work/model.gguf"
        fi
    done
done
for type in f32 f16 bf16 q8_0 q4_0; do
    compare "built-in, keys and values as $type" -ctk $type -ctv $type
done

if [ $speeds = 1 ]; then
    section "speed of memory"
    $quern device --measure
    section "speed of models"
    for model in llama3-1b:Q4_K_M llama3-1b:F16 llama3-8b:Q4_K_M llama3-8b:F16; do
        echo "-- $model"
        if ! $quern bench --device gpu --synthetic $model -p 512 -n 128 -r 3; then
            failed=$((failed + 1))
        fi
    done
fi

section "end"
if [ $failed != 0 ]; then
    echo "$failed of the above failed"
    exit 1
fi
echo "all is well"
