#!/usr/bin/env bash
# What each way of adapting a general LM to a domain brings: training on, interpolation, and the same for n-grams.
#
# usage: run.sh GENERAL DOMAIN [options of fairseq-train ..]
# GENERAL holds train and valid, DOMAIN train, valid and test, one sentence a line, as .txt or .txt.gz. The options given come last and win:
# `--cpu` without a GPU. WORDS (default 10000) are kept of the general text's vocabulary, SENTENCES (default all) of its lines are read. EPOCHS
# (default 2) are of the general LM, MORE (default 15) the most of the others. ORDER (default 3) is that of the n-grams. WORK=folder.
# The same command continues an interrupted run.
set -euo pipefail
here=$(CDPATH="" cd "$(dirname "$0")" && pwd)
source "$here/../steps.sh"
usage="usage: run.sh GENERAL DOMAIN [options of fairseq-train ..]"
general=$(realpath "${1:?$usage}") domain=$(realpath "${2:?$usage}")
shift 2
work=${WORK:-$here/work} ORDER=${ORDER:-3} EPOCHS=${EPOCHS:-2} MORE=${MORE:-15} WORDS=${WORDS:-10000}
whole_numbers EPOCHS MORE WORDS ORDER ${SENTENCES:+SENTENCES}
enter "$work"

texts=()
for split in train valid; do texts+=("$(text_of "$general" "$split")"); done
for split in train valid test; do texts+=("$(text_of "$domain" "$split")"); done
same_inputs inputs.cksum joint.txt "${texts[@]}"
same_settings joint.txt "WORDS=$WORDS" "SENTENCES=${SENTENCES:-all}"
[ -e joint.txt ] || python "$here/prepare.py" "$general" "$domain" . "$WORDS" ${SENTENCES:+"$SENTENCES"}
preprocess dict --only-source --padding-factor 1 --trainpref joint.txt --dict-only
for text in general domain; do
    preprocess "$text/bin" --only-source --srcdict dict/dict.txt --trainpref "$text/train.txt" --validpref "$text/valid.txt"
    [ -e "$text.$ORDER.arpa" ] || attlm ngram "$text/train.txt" -o "$text.$ORDER.arpa" -n "$ORDER" --unk-in-text --discount-fallback
done

# train NAME TEXT ADAM-RATE EPOCHS OPTION..: trained models are kept, those of other options refused
train() {
    local name=$1 text=$2 rate=$3 epochs=$4 training
    shift 4
    training=("$text/bin" --user-dir attlm_fairseq --task sentence_reset_lm --arch attentive_lstm_lm --criterion lm_cross_entropy \
        --decoder-embed-dim 200 --decoder-hidden-size 200 --decoder-layers 1 --dropout 0.3 --init-range 0.1 --optimizer adam --lr "$rate" \
        --lr-scheduler reduce_lr_on_plateau --lr-shrink 0.3 --lr-patience 0 --clip-norm 1 --max-tokens 1000 --batch-order length \
        --max-epoch "$epochs" --patience 3 --best-checkpoint-metric ppl --no-epoch-checkpoints --num-workers 0 --log-format simple \
        --save-dir "$name" "$@")
    train_model "$name" "$([[ $name != adapted ]] || echo "; after $(<general-lm/options)")" "${training[@]}"
}

train general-lm general 0.003 "$EPOCHS" "$@"
train domain-lm domain 0.003 "$MORE" "$@"
train adapted domain 0.003 "$MORE" --init-from general-lm/checkpoint_best.pt "$@"

general=(--lm general=general-lm/checkpoint_best.pt) domain=(--lm domain=domain-lm/checkpoint_best.pt)
adapted=(--lm adapted=adapted/checkpoint_best.pt) ngrams=(--kenlm "ngram_general=general.$ORDER.arpa" --kenlm "ngram_domain=domain.$ORDER.arpa")
# mix NAME LM..: the LMs' linear mixture with the weights that EM finds on the domain's validation text
mix() {
    attlm mix domain/valid.txt --name "$1" -o "$1.toml" "${@:2}" > "$1.log"
    attlm ppl domain/test.txt --config "$1.toml" | tail -n +2
}
echo "== perplexity on the domain's test text"
attlm ppl domain/test.txt "${general[@]}" "${domain[@]}" "${adapted[@]}" "${ngrams[@]}"
mix general-domain "${general[@]}" "${domain[@]}"
mix general-adapted "${general[@]}" "${adapted[@]}"
mix ngrams "${ngrams[@]}"
mix domain-ngrams "${domain[@]}" "${ngrams[@]}"
mix adapted-ngrams "${adapted[@]}" "${ngrams[@]}"
mix everything "${domain[@]}" "${adapted[@]}" "${ngrams[@]}"
