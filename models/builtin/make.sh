#!/bin/bash
# Makes the built-in model from nothing: text, tokenizer, training, export, answers, judgement. README.md has the numbers.
#
#   models/builtin/make.sh WORK [BUILD]     WORK: a folder for all that comes of it; BUILD: where quern is built (build)
#
# Wants python3 with torch and numpy. A step whose result is there already is left out, and training goes on from its
# last checkpoint, so the command may be stopped and given again. On two cores training takes an hour and a half.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mkdir -p "$1" && cd "$1" && pwd)
build=$(cd "${2:-$here/../../build}" && pwd)
cd "$here"

documents=300000   # more than are read, so that no document is seen twice
vocab=3072
# Millions of tokens and a factor of the rates. It falls to nothing three times: each time the model was judged, and read on.
schedule="0:0 0.2:1 2.5:1 3.2:0.93 6:0.48 7.85:0.32 8.4:0.23 11.2:0 11.5:0.3 15.2:0 15.5:0.4 27:0"
second=3.182592    # from here on fewer stories: their form is learned sooner than facts
third=15.2         # from here on another text, and all of its stories: to keep he and she apart takes many
more_documents=450000
shape="--embd 256 --layers 5 --ff 768 --context 1024"

made() { # made FILE COMMAND..: runs the command, which writes FILE.new, unless FILE is there
    local file=$1
    shift
    [ -e "$file" ] && return
    "$@"
    mv "$file.new" "$file"
}
corpus() { # corpus NAME SEED SPLIT N
    made "$work/$1.jsonl" python3 -m corpus --seed "$2" --split "$3" --documents "$4" -o "$work/$1.jsonl.new"
}

corpus train 1 train $documents
corpus heldout 2 heldout 3000
corpus third 3 train $more_documents
[ -e "$work/sample.jsonl" ] || head -n 80000 "$work/train.jsonl" >"$work/sample.jsonl"
made "$work/tokenizer.json" python3 train_tokenizer.py "$work/sample.jsonl" --vocab $vocab -o "$work/tokenizer.json.new"
pack() { # pack NAME TEXT PART_OF_STORIES
    made "$work/$1.rows" python3 pack.py "$work/$2.jsonl" --tokenizer "$work/tokenizer.json" --stories "$3" -o "$work/$1.rows.new"
}
pack train train 1
pack second train 0.4
pack third third 1
pack heldout heldout 1

# Memory that is kept, not given back after every operation.
export MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=-1 MALLOC_TOP_PAD_=268435456
train() { # train ROWS FLAGS..: goes on from where it stopped
    local rows=$1 resume=
    shift
    [ -e "$work/run/checkpoint.pt" ] && resume=--resume
    python3 train.py --data "$work/$rows.rows" --heldout "$work/heldout.rows" --run "$work/run" --vocab $vocab $shape \
        --schedule "$schedule" --compile $resume "$@"
}
train train --until $second
train second --until $third
train third

python3 export.py "$work/run/checkpoint.pt" --tokenizer "$work/tokenizer.json" -o "$work/model.records"
for type in F32 F16 Q8_0; do
    "$build/bench/quern-builtin-export" "$work/model.records" $type "$work/quern-small-$type.gguf"
done

python3 check.py prompts --seed 1 --n 100 -o "$work/prompts.jsonl"
python3 answer.py --quern "$build/cmd/quern" -m "$work/quern-small-Q8_0.gguf" --prompts "$work/prompts.jsonl" -o "$work/answers.jsonl"
python3 check.py judge --prompts "$work/prompts.jsonl" --answers "$work/answers.jsonl"
echo "the model: $work/quern-small-Q8_0.gguf"
