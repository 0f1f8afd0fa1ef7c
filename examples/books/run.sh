#!/usr/bin/env bash
# Rescoring real ASR 5-best lists of read speech (LibriSpeech, Common Voice; Whisper) with LMs of novels: each half is tuned for the other.
#
# usage: run.sh TRAIN.txt.gz VALID.txt.gz FOLDER LISTS.json.gz..: files may be plain or .gz
# About half an hour on one core; finished steps are kept, and models of other texts or options refused.
# The lists are those of HyPoradise v0.
set -euo pipefail
here=$(CDPATH="" cd "$(dirname "$0")" && pwd)
source "$here/../steps.sh"
# name_of FILE: the name of the file without .json and .gz
name_of() {
    local name
    name=$(basename "$1" .gz)
    echo "${name%.json}"
}
if [[ $# -lt 4 ]]; then
    echo "usage: run.sh TRAIN.txt.gz VALID.txt.gz FOLDER LISTS.json.gz.." >&2
    exit 2
fi
train=$(realpath "$1") valid=$(realpath "$2") work=$3
lists=()
names=/
for list in "${@:4}"; do
    lists+=("$(realpath "$list")")
    name=$(name_of "$list")
    if [[ $names == *"/$name/"* ]]; then
        echo "run.sh: two lists are called $name, and results are kept by name: rename one" >&2
        exit 2
    fi
    names+=$name/
done
enter "$work"

same_inputs texts.cksum train.txt "$train" "$valid"
[ -e train.txt ] || { gzip -cdf "$train" > train.part; mv train.part train.txt; }
[ -e valid.txt ] || { gzip -cdf "$valid" | sed -n 1,1500p > valid.part; mv valid.part valid.txt; }
[ -e lm.bin ] || attlm ngram train.txt -o lm.bin -n 4
preprocess bin --only-source --trainpref train.txt --validpref valid.txt --nwordssrc 10000
training=(bin --user-dir attlm_fairseq --task sentence_reset_lm --arch attentive_lstm_lm \
    --decoder-embed-dim 256 --decoder-hidden-size 256 --decoder-layers 1 --dropout 0.1 --init-range 0.1 \
    --optimizer adam --lr 0.004 --lr-scheduler polynomial_decay --warmup-updates 100 --total-num-update 1900 --clip-norm 5 \
    --max-tokens 700 --batch-order length --max-update 1900 --cpu --distributed-world-size 1 --num-workers 0 --save-dir attentive --no-epoch-checkpoints \
    --log-interval 100 --log-format simple)
keep_to attentive "${training[*]}"
[ -e attentive/done ] || {
    fairseq-train "${training[@]}" > train.log 2>&1 || { tail -3 train.log >&2; exit 1; }
    touch attentive/done
}
lms="--kenlm ngram=lm.bin --lm attentive=attentive/checkpoint_best.pt"
for list in "${lists[@]}"; do
    name=$(name_of "$list")
    same_inputs "$name.cksum" "$name.odd.json" "$list" lm.bin attentive/checkpoint_best.pt
    [ -e "$name.odd.json" ] || python "$here/halves.py" "$list" "$name"
    for halves in "even odd" "odd even"; do
        read -r tuned tested <<< "$halves"
        echo "== $name: tuned on the $tuned lists"
        # shellcheck disable=SC2086 # options with their arguments
        [ -e "$name.$tuned.txt" ] || {
            attlm tune "$name.$tuned.json" $lms --mbr wer --consensus -o "$name.$tuned.toml" > "$name.$tuned.part" 2>&1 \
                || { tail -3 "$name.$tuned.part" >&2; exit 1; }
            mv "$name.$tuned.part" "$name.$tuned.txt"
        }
        cat "$name.$tuned.txt"
        echo "-- tested on the $tested lists"
        attlm eval "$name.$tested.json" --config "$name.$tuned.toml"
    done
done
