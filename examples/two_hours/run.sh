#!/usr/bin/env bash
# The language model of Penn Treebank that two cores of a CPU train in two hours: a Mogrifier LSTM with the techniques of AWD-LSTM and a
# learning rate that falls to 0 in the time there is. Then test perplexity: alone, in context, and adapting to the test text.
#
# usage: run.sh FOLDER [options of fairseq-train ..]
# FOLDER holds train, valid and test as .txt or .txt.gz: one text, such as Penn Treebank, or articles in WikiText's format, at each of which
# state and memory are reset in training. The options given come last and win, but those that change the number of updates are refused.
# MODEL="--arch ..": the model and its sizes. BPTT=35 words of each of BATCH=40 rows make an update, RATE=0.0022 is the first rate. EPOCHS=9
# epochs of the text, the first WEAK=9 with less dropout than the others. MORE="9 9" goes on twice, for two more hours each, with more dropout:
# the rate falls to 0 again from MORE_RATE=0.0018 (or one for each: "0.0018 0.0015"). PROCESSES=2 of a CPU share the rows. WORK=folder.
# STEADY=28: the rate stays the same for 28 epochs, then falls to 0 until the last of EPOCHS; the LM is an average of the weights (EMA).
# POINTER=9: a pointer to the last 1,000 words joins the LM after STEADY epochs; the rate stays the same for 9 more, before it falls.
# KINDS="alone context neural-cache adaptation both" are the tests; the last two take half an hour each. FIT=3370 lines of valid are fitted on.
# The same command continues an interrupted run.
set -euo pipefail
here=$(CDPATH="" cd "$(dirname "$0")" && pwd)
source "$here/../steps.sh"
data=$(realpath "${1:?usage: run.sh FOLDER [options of fairseq-train ..]}")
shift
EPOCHS=${EPOCHS:-9} BATCH=${BATCH:-40} BPTT=${BPTT:-35} WEAK=${WEAK:-9} STEADY=${STEADY:-0} POINTER=${POINTER:-0} FIT=${FIT:-3370}
KINDS=${KINDS:-alone context neural-cache adaptation both}
whole_numbers EPOCHS BATCH BPTT FIT
whole_numbers_or_0 WEAK STEADY POINTER
known_names KINDS alone context neural-cache adaptation both
((BATCH % PROCESSES == 0)) || { echo "run.sh: BATCH=$BATCH rows cannot be shared evenly by PROCESSES=$PROCESSES" >&2; exit 2; }
for option in "$@"; do
    case ${option%%=*} in
        --batch-size | --max-sentences | --max-tokens | --bptt | --update-freq | --max-update | --max-epoch)
            echo "run.sh: ${option%%=*}: this script counts the updates: set EPOCHS, BATCH and BPTT instead" >&2
            exit 2
            ;;
    esac
done
for MORE_EPOCHS in ${MORE:-}; do whole_numbers MORE_EPOCHS; done
work=${WORK:-$here/work}
enter "$work"

plain_texts "$data"
python "$here/../wikitext.py" --marker train.txt > train.marked
documents=$(grep -cx "<document>" train.marked || true)
if ((documents)); then
    marker=(--document-marker "<document>")
    python "$here/../wikitext.py" --marker valid.txt > valid.rows
else
    marker=()
    awk 'NR > 1 && NR % 350 == 1 { print "" } { print }' valid.txt > valid.rows  # a blank line between rows that are read in parallel
fi
preprocess dict --only-source --padding-factor 1 --trainpref train.marked --dict-only
preprocess bin --only-source --srcdict dict/dict.txt --trainpref train.marked --validpref valid.rows

rows=$((BATCH / PROCESSES))
words=$(cat train.txt | wc -wl | awk '{ print $1 + $2 }')
# of an epoch: one segment more where a rotated row wraps around, and half a segment of a row at the end of a document
updates=$(((words + BATCH * BPTT - 1) / (BATCH * BPTT) + 1 + (documents + 2 * BATCH - 1) / (2 * BATCH)))
read -ra model_options <<< "${MODEL:---arch mogrifier_lstm_lm --decoder-hidden-size 1280 --projection-size 440 --mogrifier-rank 64}"
training=(bin --user-dir attlm_fairseq --task document_reset_lm "${marker[@]}" --document-order rotated --bptt "$BPTT" --batch-size "$rows" --batch-size-valid 10 \
    "${model_options[@]}" --decoder-layers 1 --decoder-embed-dim 440 --output-layer tied --init-range 0.05 \
    --criterion lm_cross_entropy --locked-dropout --temporal-activation-reg 1 --optimizer adam --clip-norm 1 \
    --lr-scheduler polynomial_decay --warmup-updates 150 --validate-interval 2 --best-checkpoint-metric ppl --no-epoch-checkpoints \
    --num-workers 0 --log-format simple --seed 1)
weak=(--dropout-in 0.4 --dropout-out 0.4 --dropout-words 0.1 --weight-drop 0.4 --activation-reg 1)
strong=(--dropout-in 0.5 --dropout-out 0.5 --dropout-words 0.15 --weight-drop 0.6 --activation-reg 2)
stronger=("${strong[@]}" --dropout-in 0.55)

# until_epoch NUMBER RATE: the rate falls to 0, after this epoch
until_epoch() {
    echo "--total-num-update $(($1 * updates)) --max-update $(($1 * updates)) --lr $2"
}

# go_on_from OLD NEW: NEW begins with the last checkpoint of OLD and its optimizer, and with the best one as long as it has no better one
go_on_from() {
    local name
    mkdir -p "$2"
    [ ! -e "$2/checkpoint_last.pt" ] || return 0
    for name in best last; do
        [ ! -e "$1/checkpoint_$name.pt" ] || cp "$1/checkpoint_$name.pt" "$2/part"
        [ ! -e "$2/part" ] || mv "$2/part" "$2/checkpoint_$name.pt"  # whole, even if this is killed
    done
}

model=model epochs=$EPOCHS weak_epochs=$WEAK steady=$STEADY pointer=$POINTER rate=${RATE:-0.0022}
first=$(until_epoch "$epochs" "$rate")
if ((steady)); then
    ((steady + pointer < epochs)) || {
        echo "run.sh: STEADY=$steady, POINTER=$pointer and EPOCHS=$epochs: the rate falls after STEADY and POINTER, so EPOCHS must be more than both" >&2
        exit 2
    }
    training+=(--average ema --average-decay 0.9995 --weight-decay 0.02)
    first="--lr-scheduler fixed --max-update $((steady * updates)) --lr $rate"
fi
if ((pointer)); then
    case "$steady ${model_options[*]} " in
        [1-9]*" --arch mogrifier_lstm_lm "*) with_pointer=pointer_mogrifier_lm ;;
        [1-9]*" --arch plain_lstm_lm "*) with_pointer=pointer_lstm_lm ;;
        *) echo "run.sh: POINTER needs STEADY, and mogrifier_lstm_lm or plain_lstm_lm as MODEL" >&2; exit 2 ;;
    esac
fi
after=
if ((weak_epochs)); then
    train_model weak "" "${training[@]}" $first "${weak[@]}" --max-epoch "$weak_epochs" --save-dir weak "$@"
    go_on_from weak model
    after="; after $(<weak/options)"
fi
train_model model "$after" "${training[@]}" $first "${strong[@]}" --save-dir model "$@"
if ((pointer)); then
    training+=(--arch "$with_pointer" --pointer-window 1000)
    train_model pointer "; after $(<model/options)" "${training[@]}" --lr-scheduler fixed --max-update $((pointer * updates)) \
        --lr "$rate" "${strong[@]}" --init-from model/checkpoint_best.pt --save-dir pointer "$@"
    model=pointer epochs=$((epochs - steady)) steady=$pointer  # a new optimizer counts its own updates
fi
if ((steady)); then
    go_on_from "$model" fall
    # the rate falls where the warm-up ends
    train_model fall "; after $(<"$model/options")" "${training[@]}" $(until_epoch "$epochs" "$rate") "${strong[@]}" \
        --warmup-updates "$((steady * updates))" --reset-lr-scheduler --save-dir fall "$@"
    model=fall
fi
cycle=0 rates=(${MORE_RATE:-0.0018})
for more_epochs in ${MORE:-}; do
    more_rate=${rates[cycle]:-${rates[-1]}} cycle=$((cycle + 1)) before=$model epochs=$((epochs + more_epochs))
    model=more$cycle
    # the line from the rate at the beginning of the training that has more_rate before these epochs and 0 after them
    rate=$(awk -v rate="$more_rate" -v all="$epochs" -v more="$more_epochs" 'BEGIN { print rate * all / more }')
    go_on_from "$before" "$model"
    train_model "$model" "; after $(<"$before/options")" "${training[@]}" $(until_epoch "$epochs" "$rate") "${stronger[@]}" \
        --save-dir "$model" "$@"
done

mkdir -p "$model/test"  # in the folder of the model, so that the results go when it is removed
for kind in $KINDS; do
    found=$model/test/$kind
    case $kind in
        alone) options=(--lm "lm=$model/checkpoint_best.pt" --context-sentences 0) ;;
        context) options=(--lm "lm=$model/checkpoint_best.pt") ;;
        neural-cache | adaptation | both)
            find=(--find "$kind")
            [ "$kind" != both ] || find=(--find neural-cache --find adaptation)
            found+=-$FIT
            options=(--config "$found.toml")
            [ -e "$found.toml" ] || attlm fit valid.txt --lm "lm=$model/checkpoint_best.pt" --context all --lines "$FIT" "${find[@]}" \
                -o "$found.toml" > "$found.fit" 2>&1 || { tail -3 "$found.fit" >&2; exit 1; }
            ;;
    esac
    [ -e "$found.tsv" ] || { attlm ppl test.txt "${options[@]}" --context all > part.tsv; mv part.tsv "$found.tsv"; }
    echo "== test, $kind: ppl $(tail -n 1 "$found.tsv" | cut -f 2)"
done
