#!/usr/bin/env bash
# The language model of Penn Treebank that two cores of a CPU train in two hours: key-value-predict attention with the techniques of AWD-LSTM
# and a learning rate that falls to 0 in the time there is. Then test perplexity: alone, in context, and adapting to the test text.
#
# usage: run.sh FOLDER [options of fairseq-train ..]
# FOLDER holds train, valid and test as .txt or .txt.gz, one text without documents such as Penn Treebank. The options given come last and win.
# EPOCHS=18 readings of the text, the first WEAK=10 with less dropout than the others. PROCESSES=2 of a CPU share 40 rows of text;
# on a GPU give PROCESSES=1. WORK=folder.
# KINDS="alone context neural-cache adaptation both" are the tests; the last two take half an hour each. LINES=3370 of valid are fitted on.
# The same command continues an interrupted run.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/../steps.sh"
data=$(realpath "${1:?usage: run.sh FOLDER [options of fairseq-train ..]}")
shift
export PROCESSES=${PROCESSES:-2}
work=${WORK:-$here/work}
mkdir -p "$work"
cd "$work"

plain_texts "$data"
preprocess dict --only-source --padding-factor 1 --trainpref train.txt --dict-only
awk 'NR > 1 && NR % 350 == 1 { print "" } { print }' valid.txt > rows.txt  # a blank line between rows that are read in parallel
preprocess bin --only-source --srcdict dict/dict.txt --trainpref train.txt --validpref rows.txt

rows=$((40 / PROCESSES))
words=$(cat train.txt | wc -wl | awk '{ print $1 + $2 }')
updates=$((${EPOCHS:-18} * ((words + 40 * 70 - 1) / (40 * 70) + 1)))  # one segment more where a rotated row wraps around
training=(bin --user-dir attlm_fairseq --task document_reset_lm --document-order rotated --bptt 70 --batch-size "$rows" --batch-size-valid 10 \
    --arch kvp_lstm_lm --decoder-layers 1 --decoder-hidden-size 1320 --decoder-embed-dim 440 --output-layer tied --init-range 0.05 \
    --criterion lm_cross_entropy --locked-dropout --temporal-activation-reg 1 --optimizer adam --lr 0.003 --clip-norm 1 \
    --lr-scheduler polynomial_decay --warmup-updates 150 --total-num-update "$updates" --max-update "$updates" \
    --validate-interval 2 --best-checkpoint-metric ppl --no-epoch-checkpoints --num-workers 0 --log-format simple --seed 1)
weak=(--dropout-in 0.4 --dropout-out 0.4 --dropout-words 0.1 --weight-drop 0.4 --activation-reg 1)
strong=(--dropout-in 0.5 --dropout-out 0.5 --dropout-words 0.15 --weight-drop 0.6 --activation-reg 2)
train_model weak "$PROCESSES processes" "${training[@]}" "${weak[@]}" --max-epoch "${WEAK:-10}" --save-dir weak "$@"
mkdir -p model
[ -e model/checkpoint_last.pt ] || {  # with its optimizer: training goes on
    cp weak/checkpoint_last.pt model/part
    mv model/part model/checkpoint_last.pt  # whole, even if this is killed
}
train_model model "$PROCESSES processes" "${training[@]}" "${strong[@]}" --save-dir model "$@"

for kind in ${KINDS:-alone context neural-cache adaptation both}; do
    case $kind in
        alone) options=(--lm lm=model/checkpoint_best.pt --context-sentences 0) ;;
        context) options=(--lm lm=model/checkpoint_best.pt) ;;
        neural-cache | adaptation | both)
            find=(--find "$kind")
            [ "$kind" != both ] || find=(--find neural-cache --find adaptation)
            options=(--config "$kind.toml")
            [ -e "$kind.toml" ] || attlm fit valid.txt --lm lm=model/checkpoint_best.pt --context all --lines "${LINES:-3370}" "${find[@]}" \
                -o "$kind.toml" > "$kind.fit" 2>&1 || { tail -3 "$kind.fit" >&2; exit 1; }
            ;;
        *) echo "run.sh: KINDS: $kind is not known" >&2; exit 2 ;;
    esac
    [ -e "$kind.tsv" ] || { attlm ppl test.txt "${options[@]}" --context all > part.tsv && mv part.tsv "$kind.tsv"; }
    echo "== test, $kind: ppl $(tail -n 1 "$kind.tsv" | cut -f 2)"
done
