#!/usr/bin/env bash
# What each training technique brings by itself: one model for each technique and seed, the same in all else, and one with all of them. The
# model without any has no dropout either.
#
# usage: run.sh FOLDER [options of fairseq-train ..]
# FOLDER holds train, valid and test as .txt or .txt.gz, one text without documents such as Penn Treebank. The options given come last and win.
# ROWS="base locked" trains some of the rows, SEEDS="1 2" with these seeds. UPDATES (8000, six epochs of Penn Treebank), WORK=folder.
# SENTENCES=N trains on the first N alone, with the dictionary of the whole text: the fewer, the more a model without techniques overfits.
# The same command continues an interrupted run.
set -euo pipefail
here=$(CDPATH="" cd "$(dirname "$0")" && pwd)
source "$here/../steps.sh"
data=$(realpath "${1:?usage: run.sh FOLDER [options of fairseq-train ..]}")
shift
declare -A techniques=(
    [base]=""
    [dropout]="--dropout 0.3"
    [locked]="--dropout 0.3 --locked-dropout"
    [words]="--dropout-words 0.1"
    [weight-drop]="--weight-drop 0.3"
    [ar-tar]="--activation-reg 2 --temporal-activation-reg 1"
    [random-bptt]="--random-bptt"
    [rotated]="--document-order rotated"
    [advsoft]="--adversarial-softmax 0.005"
    [ema]="--average ema"
)
techniques[all]="${techniques[*]}"
ROWS=${ROWS:-base dropout locked words weight-drop ar-tar random-bptt rotated advsoft ema all} UPDATES=${UPDATES:-8000}
known_names ROWS "${!techniques[@]}"
whole_numbers UPDATES ${SENTENCES:+SENTENCES}
work=${WORK:-$here/work}
enter "$work"

plain_texts "$data"
same_settings dict "SENTENCES=${SENTENCES:-all}"
preprocess dict --only-source --padding-factor 1 --trainpref train.txt --dict-only
head -n "${SENTENCES:--0}" train.txt > read.txt
awk 'NR > 1 && NR % 350 == 1 { print "" } { print }' valid.txt > rows.txt  # a blank line between rows that are read in parallel
preprocess bin --only-source --srcdict dict/dict.txt --trainpref read.txt --validpref rows.txt

printf 'row\tseed\tppl\n' > results.part
for row in $ROWS; do
    read -ra technique <<< "${techniques[$row]}"
    for seed in ${SEEDS:-1 2}; do
        name=$row-$seed
        training=(bin --user-dir attlm_fairseq --task document_reset_lm --document-order corpus --bptt 35 --arch plain_lstm_lm \
            --criterion lm_cross_entropy --decoder-embed-dim 200 --decoder-hidden-size 200 --decoder-layers 2 --dropout 0 --output-layer tied \
            --optimizer adam --lr 0.003 --lr-scheduler cosine --warmup-updates 100 --clip-norm 1 --batch-size 20 --batch-size-valid 10 --max-update "$UPDATES" \
            --best-checkpoint-metric ppl --no-epoch-checkpoints --num-workers 0 --log-format simple --save-dir "$name" "${technique[@]}" \
            --seed "$seed" "$@")
        train_model "$name" "" "${training[@]}"
        [ -s "$name/test.tsv" ] || {
            attlm ppl test.txt --lm "lm=$name/checkpoint_best.pt" --context all > part.tsv
            mv part.tsv "$name/test.tsv"
        }
        printf '%s\t%s\t%s\n' "$row" "$seed" "$(tail -n 1 "$name/test.tsv" | cut -f 2)" >> results.part
    done
done
mv results.part results.tsv
cat results.tsv
