#!/usr/bin/env bash
# Everything that is to be known of a card, in one command on a machine that has one: bash bench/gpu.sh [--checks] [BUILD]
#
# First the card; then every kernel by the tests that the interpreter runs as well, here on the card; then whole models:
# logits against plain C on the CPU (error of squares up to 1e-5 of the logits' own for float weights, 2e-4 for quantised
# ones), and greedy text, which must be that of the CPU; then a table of speeds. --checks leaves the table out. BUILD is a
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
for name in kernels ops attend matmul; do
    if ! "$build/tests/card_ptx_$name"; then
        failed=$((failed + 1))
    fi
done

failure() {
    printf '%-44s FAILED: %s\n' "$1" "$2"
    failed=$((failed + 1))
}

# The logits of a file, a number a line; behind two counts and the ids.
numbers() {
    local n
    n=$(od -An -td4 -N4 "$1")
    od -An -v -tf4 -w4 -j $((8 + 4 * n)) "$1"
}

# check_logits FILE BOUND: a golden model on the card against plain C.
check_logits() {
    local name file=$1 bound=$2 nmse
    name=$(basename "$file" .gguf)
    if ! "$quern" logits -m "$file" --device ref --ids "$file.logits" -o "$work/ref" 2>"$work/why"; then
        skipped=$((skipped + 1)) # no architecture of this build's
        return
    fi
    if ! "$quern" logits -m "$file" --device gpu --ids "$file.logits" -o "$work/gpu" 2>"$work/why"; then
        failure "$name" "$(head -n 1 "$work/why")"
        return
    fi
    nmse=$(paste <(numbers "$work/gpu") <(numbers "$work/ref") |
        awk '{ d += ($1 - $2) ^ 2; s += $2 ^ 2 } END { printf("%.3g", (s > 0 ? d / s : 1)) }')
    if awk "BEGIN { exit !(($nmse) <= ($bound)) }"; then
        printf '%-44s %s\n' "$name" "$nmse"
    else
        failure "$name" "$nmse is more than $bound"
    fi
}

# check_text NAME FLAG..: greedy text on the card and on the CPU, both in float32.
check_text() {
    local name=$1 device
    shift
    for device in cpu gpu; do
        if ! "$quern" run "$@" --device $device --exact --raw --ignore-eos --temp 0 -n 32 -p "$prompt" \
            >"$work/$device" 2>"$work/why"; then
            failure "$name" "$device: $(head -n 1 "$work/why")"
            return
        fi
    done
    if cmp -s "$work/cpu" "$work/gpu"; then
        printf '%-44s the same text\n' "$name"
    else
        failure "$name" "$(cmp "$work/cpu" "$work/gpu" | sed 's/.*byte \([0-9]*\).*/other text from byte \1 on/')"
    fi
}

section "logits of golden models against plain C: error of squares"
skipped=0
for file in "$shared"/golden/arch/*.gguf "$shared"/golden/quant/*.gguf; do
    case $file in
    */arch/* | */F16.gguf | */BF16.gguf | */F32.gguf) bound=1e-5 ;;
    *) bound=2e-4 ;;
    esac
    if [ -e "$file" ]; then
        check_logits "$file" $bound
    fi
done
echo "$skipped left out: their architecture is not in this build"

section "greedy text against the CPU's"
prompt="Once upon a time there was a little girl"
check_text built-in
for type in f32 bf16 q8_0 q4_0; do
    check_text "built-in, keys and values as $type" -ctk $type -ctv $type
done
for file in "$shared"/models/*.gguf; do
    if [ -e "$file" ]; then
        check_text "$(basename "$file" .gguf)" -m "$file"
    fi
done
for preset in llama-tiny llama-moe-tiny qwen3-tiny gemma2-tiny phi3-tiny gpt2-tiny; do
    for type in F32 Q4_K_M; do
        "$synth" $preset $type "$work/model.gguf" >/dev/null
        check_text "$preset $type" -m "$work/model.gguf"
    done
done

if [ $speeds = 1 ]; then
    section "speed of memory"
    $quern device --measure
    section "building blocks, and from which size on --device auto takes this card"
    if ! "$build/bench/quern-micro" --device gpu; then
        failed=$((failed + 1))
    fi
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
