#!/usr/bin/env bash
# Checks and measures a GPU: bash bench/gpu.sh [--checks] [--speed] [--variants] [BUILD]
#
# --checks: every test of kernels, run on the card; the logits of golden models against plain C on the CPU (the squared
#   error may be 1e-5 of the squared logits with float weights, 2e-4 with quantised ones); and greedy text, which must
#   equal the CPU's. The checks run side by side on all cores, each with a time limit of its own.
# --speed: how fast models of real shapes with random weights run, the most important ones first.
#
# --variants: the kernels among which the machine chooses for a product, a line for each product and number of rows with
#   the time of each; and how long the first load of a model takes with these measurements.
#
# Without a flag all parts run. BUILD is a folder that meson has built (build); only the programs in it are used, with
# bash, coreutils, awk, find and xargs. The output also goes to a file for each part, in $OUT or else bench/results.
# Exit status: 0 if all that was asked for ran to its end and is right, 1 if not, 2 for bad usage, 6 without a GPU.
#
# Environment:
#   QUERN_SHARED    folder with golden/ and models/ (../shared)
#   LLAMA_BENCH     a llama-bench program, which is run in turn with quern
#   OUT             folder for the results
#   TMPDIR          folder for models: 17 GB for a part (/dev/shm if it has room, else /tmp)
#   CHECKS_SECONDS  limit of the checks (120)
#   SPEED_SECONDS   limit of the speeds (180; 480 with LLAMA_BENCH)
#   VARIANTS_SECONDS  limit of the variants (180)
#   CHECK_SECONDS   limit of one check (60)
#   JOBS            checks that run at the same time (the number of cores)
#   CHECK_PRESETS   shapes of the models whose text is checked
#   SPEED_CELLS     file with other lines for the table `cells` below
#   VARIANT_MODELS  shapes and types of the models whose kernels are measured
#   VARIANT_ROWS    the most rows of their steps (512)
set -euo pipefail
cd "$(dirname "$0")/.."

# The head of this file, as far as it is a comment, is the help.
usage() {
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' bench/gpu.sh
}

parts=()
while [ "${1:-}" = --checks ] || [ "${1:-}" = --speed ] || [ "${1:-}" = --variants ]; do
    parts+=("${1#--}")
    shift
done
if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
    usage
    exit 0
fi
if [ $# -gt 1 ] || [[ ${1:-} == -* ]]; then
    echo "usage: bash bench/gpu.sh [--checks] [--speed] [--variants] [BUILD] (--help: what they do)" >&2
    exit 2
fi
if [ ${#parts[@]} = 0 ]; then
    parts=(checks speed variants)
fi
build=${1:-build}
quern=$build/cmd/quern
synth=$build/bench/quern-synth
shared=${QUERN_SHARED:-../shared}
out=${OUT:-bench/results}
llama_bench=${LLAMA_BENCH:-}
presets=${CHECK_PRESETS-llama-tiny llama-moe-tiny qwen3-tiny gemma2-tiny phi3-tiny gpt2-tiny}
check_seconds=${CHECK_SECONDS:-60}
prompt="Once upon a time there was a little girl"
gib=$((1 << 20)) # in KiB, as df counts

room=$(df -k --output=avail /dev/shm 2>/dev/null | tail -n 1)
if [ -z "${TMPDIR:-}" ] && [ "${room:-0}" -gt $((24 * gib)) ]; then
    export TMPDIR=/dev/shm
fi
export COLUMNS=160 # the tables of quern bench leave out columns for narrower pages
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$work/failed"
: >"$work/left-out"
: >"$work/ended"

section() {
    printf '\n== %s\n' "$1"
}

# passed NAME WHAT and failure NAME WHY print a result. Several processes may do so at once, so each line is one write.
passed() {
    printf '%-64s %s\n' "$1" "$2"
    echo "$1" >>"$work/ended"
}

failure() {
    printf '%-64s FAILED: %s\n' "$1" "$2"
    echo "$1" >>"$work/ended"
    echo "$1" >>"$work/failed"
}

# within SECONDS COMMAND..: the command with this limit, and not beyond the end of the part. It gets an interrupt first,
# so that it can print what it has. Status 124 or 137: it was cut off.
within() {
    local limit=$1 left=$((deadline - $(date +%s)))
    shift
    if [ $left -le 0 ]; then
        return 124
    fi
    timeout -s INT -k 5 $((limit < left ? limit : left)) "$@"
}

# reason STATUS FILE: why a command failed: it was cut off, or the first line that it wrote.
reason() {
    if [ "$1" = 124 ] || [ "$1" = 137 ]; then
        echo "cut off by the time limit"
    else
        echo "status $1: $(head -n 1 "$2" | cut -c 1-300)"
    fi
}

# ---- checks. Each runs in a shell of its own, prints one line, and notes a failure in a file.

# check_kernel PROGRAM SUITE TEST
check_kernel() {
    local name="$2/$3" status=0
    within "$check_seconds" "$1" --filter "$name" -j 1 --color=never >"$dir/log" 2>&1 || status=$?
    if [ $status = 0 ]; then
        passed "$name" passed
        return
    fi
    failure "$name" "$(reason $status "$dir/log")"
    head -n 12 "$dir/log" | head -c 2000
}

# The logits of a file, a number a line. They follow two counts and the token ids.
numbers() {
    local n
    n=$(od -An -td4 -N4 "$1")
    od -An -v -tf4 -w4 -j $((8 + 4 * n)) "$1"
}

# logits_of DEVICE FILE: writes the logits of a golden model to $dir/DEVICE, and the messages to $dir/why.
logits_of() {
    within "$check_seconds" "$quern" logits -t 1 -m "$2" --device "$1" --ids "$2.logits" -o "$dir/$1" 2>"$dir/why"
}

# check_logits FILE BOUND: a golden model on the card against plain C.
check_logits() {
    local name status=0 nmse
    name=$(basename "$(dirname "$1")")/$(basename "$1" .gguf)
    logits_of ref "$1" || status=$?
    if [ $status = 3 ] && grep -q 'is not known' "$dir/why"; then
        echo "$name" >>"$work/left-out"
        return
    fi
    if [ $status = 0 ]; then
        logits_of gpu "$1" || status=$?
    fi
    if [ $status != 0 ]; then
        failure "$name" "$(reason $status "$dir/why")"
        return
    fi
    nmse=$(paste <(numbers "$dir/gpu") <(numbers "$dir/ref") |
        awk '{ d += ($1 - $2) ^ 2; s += $2 ^ 2 } END { printf("%.3g", (s > 0 ? d / s : 1)) }')
    if awk -v n="$nmse" -v bound="$2" 'BEGIN { exit !(n ~ /^[0-9]/ && n + 0 <= bound + 0) }'; then
        passed "$name" "$nmse"
    else
        failure "$name" "$nmse is more than $2"
    fi
}

# check_text NAME FLAG..: greedy text on the card and on the CPU, both in float32.
check_text() {
    local name=$1 device status
    shift
    for device in cpu gpu; do
        status=0
        within "$check_seconds" "$quern" run "$@" -t 1 --device $device --exact --raw --ignore-eos --temp 0 -n 32 \
            -p "$prompt" >"$dir/$device" 2>"$dir/why" || status=$?
        if [ $status != 0 ]; then
            failure "$name" "$device: $(reason $status "$dir/why")"
            return
        fi
    done
    if cmp -s "$dir/cpu" "$dir/gpu"; then
        passed "$name" "the same text"
    else
        failure "$name" "$(cmp "$dir/cpu" "$dir/gpu" 2>&1 | sed 's/.*byte \([0-9]*\).*/other text from byte \1 on/')"
    fi
}

# check_preset PRESET MIX: the text of a small model of a shape.
check_preset() {
    local status=0
    "$synth" "$1" "$2" "$dir/model.gguf" >"$dir/why" 2>&1 || status=$?
    if [ $status != 0 ]; then
        failure "$1 $2" "$(reason $status "$dir/why")"
        return
    fi
    check_text "$1 $2" -m "$dir/model.gguf"
}

# run_job LINE: one check; LINE is a function and its arguments with tabs between them.
run_job() {
    local -a words
    IFS=$'\t' read -r -a words <<<"$1"
    dir=$(mktemp -d -p "$work")
    "${words[@]}"
    rm -rf "$dir"
}

job() {
    local IFS=$'\t'
    echo "$*"
}

# kernel_jobs: a job for each test of the programs that test kernels. A program that lists none is a failure.
kernel_jobs() {
    local name program
    for name in kernels ops attend matmul half joined ring parts; do
        program=$build/tests/card_ptx_$name
        "$program" --list >"$work/list" 2>"$work/why" || true
        if ! awk -v program="$program" '/^[a-z_]+: / { suite = substr($1, 1, length($1) - 1) }
             NF == 2 && !/: / { printf("check_kernel\t%s\t%s\t%s\n", program, suite, $2); n++ }
             END { exit !n }' "$work/list"; then
            failure "$program" "it lists no tests: $(head -n 1 "$work/why")" >&2
        fi
    done
}

logits_jobs() {
    local file bound
    for file in "$shared"/golden/arch/*.gguf "$shared"/golden/quant/*.gguf; do
        case $file in
        */arch/* | */F16.gguf | */BF16.gguf | */F32.gguf) bound=1e-5 ;;
        *) bound=2e-4 ;;
        esac
        if [ -e "$file" ]; then
            job check_logits "$file" $bound
        fi
    done
}

text_jobs() {
    local type file preset
    job check_text built-in
    for type in f32 bf16 q8_0 q4_0; do
        job check_text "built-in, keys and values as $type" -ctk $type -ctv $type
    done
    for file in "$shared"/models/*.gguf; do
        if [ -e "$file" ]; then
            job check_text "$(basename "$file" .gguf)" -m "$file"
        fi
    done
    for preset in $presets; do
        job check_preset "$preset" F32
        job check_preset "$preset" Q4_K_M
    done
}

checks() {
    local jobs=${JOBS:-$(nproc)} n
    export deadline=$(($(date +%s) + ${CHECKS_SECONDS:-120})) quern synth work check_seconds prompt
    export -f run_job check_kernel check_logits check_text check_preset logits_of numbers within reason passed failure
    kernel_jobs >"$work/jobs"
    text_jobs >>"$work/jobs"
    logits_jobs >>"$work/jobs"
    n=$(wc -l <"$work/jobs")
    section "$n checks, $jobs at a time, in the order in which they end"
    : >"$work/ended"
    # shellcheck disable=SC2016 # The inner shell expands its argument.
    xargs -P "$jobs" -d '\n' -n 1 -a "$work/jobs" bash -c 'run_job "$1"' job || true
    section "end of the checks"
    echo "$(wc -l <"$work/left-out") golden models left out, whose architecture this build does not know"
    n=$((n - $(cat "$work/ended" "$work/left-out" | wc -l)))
    if [ $n != 0 ]; then
        failure "$n checks" "they ended without a result"
    fi
}

# ---- speed

# What is measured: a title, the limit in seconds, shape and types of the model, flags of quern bench. Tests of one model
# stand together, because its file is written once.
cells() {
    if [ -n "${SPEED_CELLS:-}" ]; then
        cat "$SPEED_CELLS"
        return
    fi
    cat <<'EOF'
8B Q4_K_M: sequences at once|40|llama3-8b:Q4_K_M|-p 0 -n 32 -npl 8,16,32,64
8B Q4_K_M: prompts of few rows and of many, and decode of one sequence|40|llama3-8b:Q4_K_M|-p 16,32,64,128,512,4096 -n 64
8B Q4_K_M: a prompt and decode behind 8192 positions|40|llama3-8b:Q4_K_M|-d 8192 -p 512 -n 32
8B F16|60|llama3-8b:F16|-p 512 -n 32
1B Q4_K_M|20|llama3-1b:Q4_K_M|-p 0 -n 128
8B Q8_0|40|llama3-8b:Q8_0|-p 0 -n 64
8B Q4_K_M with kernels chosen without measuring|30|llama3-8b:Q4_K_M|-p 32,512 -n 32 --no-tune
8B F16 with float activations|60|llama3-8b:F16|-p 512 -n 32 --exact
mixture: 8 of the 48 layers of Qwen 3 30B-A3B, so a whole model takes some six times as long|30|qwen3-a3b-8l:Q4_K_M|-p 512 -n 64
EOF
}

# get_model SHAPE:TYPES: writes this model, in place of the one before, to $work/model.gguf. Status 124: out of time.
get_model() {
    if [ "$model" = "$1" ]; then
        return 0
    fi
    model=
    rm -f "$work/model.gguf"
    within 120 "$synth" "${1%:*}" "${1#*:}" "$work/model.gguf" >"$work/why" 2>&1 || return $?
    model=$1
}

# measure TITLE LIMIT MODEL FLAGS
measure() {
    local title=$1 limit=$2 status=0 started=$SECONDS
    local -a flags
    read -r -a flags <<<"$4"
    # llama-bench has no test of several sequences at once.
    if [ -n "$llama_bench" ] && [[ $4 != *-npl* ]]; then
        flags+=(--against-bin "$llama_bench")
        limit=$((4 * limit))
    fi
    section "$title"
    get_model "$3" || status=$?
    if [ $status = 0 ]; then
        within "$limit" "$quern" bench --device gpu --no-ceilings -r "$repeats" -m "$work/model.gguf" "${flags[@]}" \
            2>"$work/why" || status=$?
        cat "$work/why"
    fi
    if [ $status != 0 ]; then
        failure "$title" "$(reason $status "$work/why")"
    fi
    echo "($((SECONDS - started)) s)"
}

speed() {
    local title limit name flags seconds=180 repeats=3 model=
    if [ -n "$llama_bench" ]; then
        seconds=480 repeats=2
    fi
    deadline=$(($(date +%s) + ${SPEED_SECONDS:-$seconds}))
    section "speed of memory"
    within 30 "$quern" device --measure 2>"$work/why" || failure "speed of memory" "$(reason $? "$work/why")"
    while IFS='|' read -r title limit name flags <&3; do
        measure "$title" "$limit" "$name" "$flags"
    done 3< <(cells)
    rm -f "$work/model.gguf"
    section "end of the speeds"
}

# ---- variants

# try_variants NAME LIMIT ROWS: every kernel of the products of a model for steps of up to ROWS rows. Nothing is kept from
# earlier measurements. The compiled kernels are, so that a second model of the same shapes needs less time.
try_variants() {
    local status=0 started=$SECONDS
    section "$1, up to $3 rows"
    get_model "$1" || status=$?
    rm -f "$work"/cache/quern/kernels/products-*
    if [ $status = 0 ]; then
        XDG_CACHE_HOME=$work/cache within "$2" "$quern" device --tune -m "$work/model.gguf" -ub "$3" 2>"$work/why" ||
            status=$?
        cat "$work/why"
    fi
    if [ $status != 0 ]; then
        failure "variants of $1" "$(reason $status "$work/why")"
    fi
    echo "($((SECONDS - started)) s)"
}

# What a user waits for: the first run of a model on a card that has never seen it, and the second.
first_loads() {
    local which
    section "the first load of a model, and the second"
    get_model llama3-1b:Q4_K_M || return 0
    rm -rf "$work/cache"
    for which in first second; do
        local from=$EPOCHREALTIME
        XDG_CACHE_HOME=$work/cache within 60 "$quern" run --device gpu -m "$work/model.gguf" -n 1 "$prompt" \
            >/dev/null 2>"$work/why" || failure "$which load" "$(reason $? "$work/why")"
        awk -v which="$which" -v from="$from" -v to="$EPOCHREALTIME" \
            'BEGIN { printf("%s: %.1f s\n", which, to - from) }'
    done
}

variants() {
    local model='' name
    deadline=$(($(date +%s) + ${VARIANTS_SECONDS:-180}))
    for name in ${VARIANT_MODELS-llama3-8b:Q4_K_M llama3-8b:Q8_0 llama3-8b:F16}; do
        try_variants "$name" 80 "${VARIANT_ROWS:-512}"
    done
    first_loads
    rm -f "$work/model.gguf"
    section "end of the variants"
}

# ---- parts

# The head of a result: the card, the day and the program.
head_of() {
    echo "card     $card"
    echo "date     $(date -u '+%Y-%m-%d %H:%M UTC')"
    echo "commit   $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
    "$quern" --version
    if [ -n "$llama_bench" ]; then
        echo "peer     $llama_bench"
    fi
    "$quern" device
}

# run_part NAME: the part with its head and its verdict, shown and kept.
run_part() {
    local before file
    before=$(wc -l <"$work/failed")
    file=$out/gpu-$(sed 's/[^A-Za-z0-9]\+/-/g; s/-$//' <<<"$card")-$(date -u +%Y-%m-%d)-$1.txt
    {
        section "$1"
        head_of
        "$1"
        echo "$(($(wc -l <"$work/failed") - before)) failed"
    } 2>&1 | tee "$file"
    echo "kept in $file"
}

"$quern" device >"$work/device"
card=$(sed -n 's/^gpu:0 *//p' "$work/device" | sed 's/, compute capability.*//')
if [ -z "$card" ]; then
    cat "$work/device"
    exit 6
fi
mkdir -p "$out"
for part in "${parts[@]}"; do
    run_part "$part"
done
if [ -s "$work/failed" ]; then
    printf '\n%d failed:\n' "$(wc -l <"$work/failed")"
    cat "$work/failed"
    exit 1
fi
printf '\nall is well\n'
