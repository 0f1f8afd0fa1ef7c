#!/usr/bin/env bash
# The attentive language models of Salton, Ross and Kelleher (2017), with the paper's sizes and training.
#
# usage: run.sh ptb|wikitext2 FOLDER [options of fairseq-train ..]
# FOLDER holds train, valid and test, one sentence a line, as .txt or .txt.gz. WikiText-2 has paragraphs: split it first, see
# split_sentences.py. The options given come last and win: `--cpu` without a GPU; several GPUs are used by themselves.
# SCORE=combined (default single) and WORK=folder choose the attention and where everything is written, a folder a corpus.
# FAMILY=plain_lstm_lm trains an LSTM without a memory instead, which the paper's tables lack.
# SEEDS="1 2 3 4 5" trains a model with each seed and tests the ensembles of the first 1, 2, .. of them: their probabilities are averaged.
# The same command continues an interrupted run; one with other options or texts is refused where there is a model of that name already.
set -euo pipefail
here=$(CDPATH="" cd "$(dirname "$0")" && pwd)
source "$here/../steps.sh"
corpus=${1:?usage: run.sh ptb|wikitext2 FOLDER [options of fairseq-train ..]}
data=$(realpath "${2:?usage: run.sh ptb|wikitext2 FOLDER [options of fairseq-train ..]}")
shift 2
case $corpus in
    ptb) decay=(--force-anneal 13 --lr-shrink 0.5) ;;              # halved with every epoch after the 12th
    wikitext2) decay=(--force-anneal 15 --lr-shrink 0.869565217) ;; # divided by 1.15 with every epoch after the 14th
    *) echo "run.sh: $corpus: expected ptb or wikitext2" >&2; exit 2 ;;
esac
family=${FAMILY:-attentive_lstm_lm}
score=${SCORE:-single}
work=${WORK:-$here/work}
enter "$work/$corpus"

plain_texts "$data"
binarise --padding-factor 1

name=$family
reader=()
[ "$family" != attentive_lstm_lm ] || { reader=(--attention-score "$score"); name=$family-$score; }
lms=()
members=
for seed in ${SEEDS:-""}; do
    model=$name${seed:+-$seed}
    training=(bin --user-dir attlm_fairseq --task sentence_reset_lm --arch "${family}_$corpus" ${reader[@]+"${reader[@]}"} \
        --criterion lm_cross_entropy --sentence-avg --optimizer sgd --lr 1.0 --lr-scheduler fixed "${decay[@]}" --clip-norm 5 \
        --batch-size 32 --batch-order corpus --cut-sentences 35 --max-epoch 60 --patience 10 --best-checkpoint-metric ppl \
        --no-epoch-checkpoints --num-workers 0 --log-format simple --save-dir "$model" ${seed:+--seed "$seed"} "$@")
    train_model "$model" "" "${training[@]}"
    members=${members:+$members:}$model/checkpoint_best.pt
    lms+=(--lm "$name${seed:+-first-$((${#lms[@]} / 2 + 1))}=$members")
done
attlm ppl test.txt "${lms[@]}"
