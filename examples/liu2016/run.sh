#!/usr/bin/env bash
# AMSRN (Liu, Chuang and Lee 2016): the rows of Tables 2 and 3. A plain LSTM is trained first; AMSRN's models begin with its
# embeddings, LSTM and output matrix and are trained as long as the plain one is trained on. The other papers' models begin from nothing.
#
# usage: run.sh FOLDER [options of fairseq-train ..]
# FOLDER holds train, valid and test, one sentence a line, as .txt or .txt.gz. The options given come last and win: `--cpu` without a GPU.
# SYSTEMS="plain tied" trains some of the rows. EPOCHS (default 9) is how long the plain LSTM is trained, MORE (default 2) AMSRN's models
# after it, ALONE (default 6) those that begin from nothing; the rate falls to 0.3 of itself with each of the last epochs. WORK=folder.
# The same command continues an interrupted run; where there is a model already that was trained with other options, texts or epochs,
# the script stops.
# The paper does not say how it trains: Adam, dropout and the rates below are ours.
set -euo pipefail
here=$(CDPATH="" cd "$(dirname "$0")" && pwd)
source "$here/../steps.sh"
data=$(realpath "${1:?usage: run.sh FOLDER [options of fairseq-train ..]}")
shift
SYSTEMS=${SYSTEMS:-plain none independent tied complementary entropy averaging single combined kvp_attention key_value_predict four_gram}
known_names SYSTEMS plain none independent tied complementary entropy averaging single combined kvp_attention key_value_predict four_gram \
    rmn rmr lstmn hornn_fofe hornn_gated rnn
EPOCHS=${EPOCHS:-9} MORE=${MORE:-2} ALONE=${ALONE:-6}
whole_numbers EPOCHS MORE ALONE
work=${WORK:-$here/work}
enter "$work"

plain_texts "$data"
binarise --padding-factor 1

# train NAME ADAM-RATE EPOCHS FIRST-EPOCH-OF-LOWER-RATE OPTION..: trained models are kept, those of other options refused
train() {
    local name=$1 rate=$2 epochs=$3 lower=$4 training
    shift 4
    training=(bin --user-dir attlm_fairseq --task sentence_reset_lm --criterion lm_cross_entropy --output-layer untied \
        --decoder-embed-dim 50 --decoder-hidden-size 50 --decoder-layers 1 --dropout 0.2 --init-range 0.1 \
        --optimizer adam --lr "$rate" --lr-scheduler fixed --force-anneal "$lower" --lr-shrink 0.3 --clip-norm 5 --max-tokens 1200 --batch-order length \
        --max-epoch "$epochs" --best-checkpoint-metric ppl --no-epoch-checkpoints --num-workers 0 --log-format simple \
        --save-dir "$name" "$@")
    # the others begin with the plain LSTM as it was trained
    train_model "$name" "$([[ $name == lstm ]] || echo "; after $(<lstm/options)")" "${training[@]}"
}

train lstm 0.01 "$EPOCHS" $(((EPOCHS + 1) / 2)) --arch plain_lstm_lm "$@"
begin=(--init-from lstm/checkpoint_best.pt)
for system in $SYSTEMS; do
    schedule=(0.001 "$MORE" "$MORE")
    case $system in
        plain) model=(--arch plain_lstm_lm "${begin[@]}") ;;
        none | independent | tied | complementary) model=(--arch "amsrn_lm_${system}_ours" "${begin[@]}") ;;
        entropy) model=(--arch amsrn_lm_tied_ours --attention-entropy "${LAMBDA:-0.01}" "${begin[@]}") ;;
        # a new tanh layer stands before the output: weights of the plain LSTM are no beginning for these
        averaging | single | combined | kvp_attention | rmn | rmr | lstmn | hornn_fofe | hornn_gated | rnn) schedule=(0.01 "$ALONE" $(((ALONE + 3) / 2))) ;;&
        rmn | rmr) model=(--arch "rm_lm_${system}_ours") ;;
        lstmn | rnn) model=(--arch "${system}_lm") ;;
        hornn_fofe | hornn_gated) model=(--arch hornn_lm --hornn-feedback "${system#hornn_}") ;;
        averaging) model=(--arch averaging_lstm_lm) ;;
        single | combined) model=(--arch attentive_lstm_lm --attention-score "$system") ;;
        kvp_attention) model=(--arch kvp_lstm_lm --kvp-mode attention --attention-window 10) ;;
        # an output of 50 needs states of 3 and 4 times 50
        key_value_predict | four_gram) schedule=(0.006 "$ALONE" $(((ALONE + 3) / 2))) ;;&
        key_value_predict) model=(--arch kvp_lstm_lm --decoder-hidden-size 150) ;;
        four_gram) model=(--arch ngram_rnn_lm --ngram-order 4 --decoder-hidden-size 200) ;;
    esac
    train "$system" "${schedule[@]}" "${model[@]}" "$@"
done
# shellcheck disable=SC2046 # options with their arguments
attlm ppl test.txt $(for system in lstm $SYSTEMS; do echo "--lm $system=$system/checkpoint_best.pt"; done)
