#!/usr/bin/env bash
# Questions that the papers leave open, over documents: how long should a memory be kept, should attention leave out the newest states, how
# far back does each family read?
#
# usage: open_questions.sh FOLDER [options of fairseq-train ..]
# FOLDER holds train, valid and test as .txt or .txt.gz in WikiText's format: articles are documents, their paragraphs sentences. The options
# given come last and win: `--cpu` without a GPU. UPDATES (default 2500) of each model; ROWS="averaging/all combined/all/15" trains some of
# the rows: FAMILY/K/SKIP, K the sentences after which state and memory are reset (`all`: only at documents), SKIP for `--attention-skip`.
# LINES_READ (default 300) of test are read for attention by distance. WORK=folder. The same command continues an interrupted run.
#
# results.tsv has the perplexity of each row on test, reset as in training, at documents alone, and at every sentence.
set -euo pipefail
here=$(CDPATH="" cd "$(dirname "$0")" && pwd)
source "$here/../steps.sh"
data=$(realpath "${1:?usage: open_questions.sh FOLDER [options of fairseq-train ..]}")
shift
ROWS=${ROWS:-averaging/1 averaging/2 averaging/4 averaging/8 averaging/all plain/1 plain/all single/1 single/all combined/1 combined/all \
    combined/all/5 combined/all/15 amsrn/1 amsrn/all key_value_predict/1 key_value_predict/all} UPDATES=${UPDATES:-2500} LINES_READ=${LINES_READ:-300}
for row in $ROWS; do
    [[ $row =~ ^(plain|averaging|single|combined|amsrn|key_value_predict)/(all|[1-9][0-9]*)(/[0-9]+)?$ ]] || {
        echo "open_questions.sh: found $row in ROWS, expected FAMILY/K or FAMILY/K/SKIP, such as combined/all/15" >&2
        exit 2
    }
done
whole_numbers UPDATES LINES_READ
work=${WORK:-$here/work-open-questions}
enter "$work"

plain_texts "$data" python "$here/../wikitext.py" --blank
binarise --padding-factor 1
distances=()
grep -v -m "$LINES_READ" '^$' test.txt > read.txt
cpu=$(printf '%s\n' "$@" | grep -x -e --cpu || true)

printf 'family\treset_every\tskip\tas_trained\tdocuments\tsentences\n' > results.part
for row in $ROWS; do
    IFS=/ read -r family every skip <<< "$row"
    slots=()
    case $family in
        plain) model=(--arch plain_lstm_lm) ;;
        averaging) model=(--arch averaging_lstm_lm) ;;
        single) model=(--arch attentive_lstm_lm) ;;
        # memories of single states would grow with the document
        combined) model=(--arch attentive_lstm_lm --attention-score combined) slots=(--memory-slots 35) ;;
        amsrn) model=(--arch amsrn_lm_tied_ours) slots=(--memory-slots 35) ;;
        # an output of 200 needs states of 3 times 200
        key_value_predict) model=(--arch kvp_lstm_lm --decoder-hidden-size 600) slots=(--memory-slots 35) ;;
    esac
    [ -z "$skip" ] || model+=(--attention-skip "$skip")
    documents=(--user-dir attlm_fairseq --task document_reset_lm --bptt 35 "${slots[@]}")
    kept=${every/all/0} name=${row//\//-}
    training=(bin "${documents[@]}" --reset-every "$kept" --criterion lm_cross_entropy --decoder-embed-dim 200 --decoder-hidden-size 200 \
        --decoder-layers 1 --dropout 0.2 --output-layer adaptive --adaptive-cutoffs 4000,12000 --optimizer adam --lr 0.005 \
        --lr-scheduler polynomial_decay --warmup-updates 100 --total-num-update "$UPDATES" --clip-norm 5 --batch-size 32 \
        --max-update "$UPDATES" --best-checkpoint-metric ppl --no-epoch-checkpoints --num-workers 0 --log-format simple \
        --save-dir "$name" "${model[@]}" "$@")
    train_model "$name" "" "${training[@]}"
    found=()
    for reset in "$kept" 0 1; do
        log=$name/test-$reset.log
        # shellcheck disable=SC2086 # one word or none
        [ -s "$log" ] || { fairseq-validate bin "${documents[@]}" --reset-every "$reset" --valid-subset test --path "$name/checkpoint_best.pt" \
            --batch-size 32 --num-workers 0 --log-format simple $cpu > part.log 2>&1 || { tail -5 part.log; exit 1; }; mv part.log "$log"; }
        found+=("$(grep -o '| ppl [0-9.]*' "$log" | tail -1 | cut -d ' ' -f 3)")
    done
    printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$family" "$every" "${skip:-0}" "${found[@]}" >> results.part
    case $family in plain | averaging) continue ;; esac
    distances+=("$name/$name.$LINES_READ.distance.json")
    [ -e "${distances[-1]}" ] || attlm attention --file read.txt --lm "$name=$name/checkpoint_best.pt" -o "${distances[-1]}"
done
mv results.part results.tsv
cat results.tsv
python "$here/open_questions.py" results.tsv "${distances[@]}"
