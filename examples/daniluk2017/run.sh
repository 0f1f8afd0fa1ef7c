#!/usr/bin/env bash
# Key-value-predict attention and N-gram RNNs over documents (Daniluk et al. 2017): state and memory are carried to an article's end.
#
# usage: run.sh FOLDER [options of fairseq-train ..]
# FOLDER holds train, valid and test as .txt or .txt.gz, in WikiText's format. The options given come last and win: for a small run
# on a CPU `--cpu --decoder-embed-dim 100 --decoder-hidden-size 300 --output-layer adaptive --adaptive-cutoffs 2000,10000 --max-epoch 2`.
# ARCH=ngram_rnn_lm_4gram (default kvp_lstm_lm_key_value_predict) and WORK=folder choose the model and where everything is written.
# The same command continues an interrupted run; one with other options or texts is refused where there is a model of that name already.
set -euo pipefail
here=$(CDPATH="" cd "$(dirname "$0")" && pwd)
source "$here/../steps.sh"
data=$(realpath "${1:?usage: run.sh FOLDER [options of fairseq-train ..]}")
shift
arch=${ARCH:-kvp_lstm_lm_key_value_predict}
work=${WORK:-$here/work}
enter "$work"

plain_texts "$data" python "$here/../wikitext.py" --marker
binarise

documents=(--user-dir attlm_fairseq --task document_reset_lm --document-marker "<document>" --bptt 20)
training=(bin "${documents[@]}" --arch "$arch" --criterion lm_cross_entropy --optimizer adam --lr 0.001 --clip-norm 5 \
    --batch-size 64 --dropout 0 --output-bias unigram --max-epoch 30 --patience 3 --best-checkpoint-metric ppl --no-epoch-checkpoints --num-workers 0 \
    --log-format simple --save-dir "$arch" "$@")
train_model "$arch" "" "${training[@]}"

cpu=$(printf '%s\n' "$@" | grep -x -e --cpu || true)
for reset in document segment; do
    echo "== test, reset at each $reset"
    # shellcheck disable=SC2086 # one word or none
    fairseq-validate bin "${documents[@]}" --reset $reset --valid-subset test --path "$arch/checkpoint_best.pt" --batch-size 64 --num-workers 0 \
        --log-format simple $cpu 2>&1 | tee "$arch.$reset.log" | grep -o "| ppl [0-9.]*" || { tail -5 "$arch.$reset.log"; exit 1; }
done
