#!/usr/bin/env bash
# What context is worth to each family of LMs: trained over documents, then tested by single sentences, with the sentences before, and with
# temperature, caches and dynamic evaluation.
#
# usage: run.sh FOLDER [options of fairseq-train ..]
# FOLDER holds train, valid and test as .txt or .txt.gz: in WikiText's format (articles are documents), or one text without documents
# such as Penn Treebank. The options given come last and win. SYSTEMS="plain averaging" trains some of the LMs, KINDS="alone context" does some
# of the tests. FIT and TEST are the lines of valid that `attlm fit` reads (800) and those of test (500); ADAPT those for dynamic evaluation (400).
# UPDATES (2500) are those of each LM. WORK=folder. The same command continues an interrupted run.
set -euo pipefail
here=$(CDPATH="" cd "$(dirname "$0")" && pwd)
source "$here/../steps.sh"
data=$(realpath "${1:?usage: run.sh FOLDER [options of fairseq-train ..]}")
shift
all_systems="plain averaging single combined amsrn key_value_predict four_gram"
all_kinds="alone context temperature unigram-cache neural-cache adaptation"
SYSTEMS=${SYSTEMS:-$all_systems} KINDS=${KINDS:-$all_kinds} UPDATES=${UPDATES:-2500} FIT=${FIT:-800} TEST=${TEST:-500} ADAPT=${ADAPT:-400}
# shellcheck disable=SC2086 # several words
known_names SYSTEMS $all_systems
# shellcheck disable=SC2086
known_names KINDS $all_kinds
whole_numbers UPDATES FIT TEST ADAPT
work=${WORK:-$here/work}
enter "$work"

plain_texts "$data" python "$here/../wikitext.py" --blank
binarise --padding-factor 1
# a text without documents is read in its order by all rows of a batch, each from another place
if grep -q '^$' train.txt; then context=blank order=shuffled; else context=all order=corpus; fi

models=() checkpoints=()
for system in $SYSTEMS; do
    case $system in
        plain) model=(--arch plain_lstm_lm) ;;
        averaging) model=(--arch averaging_lstm_lm) ;;
        single) model=(--arch attentive_lstm_lm) ;;
        # memories of single states would grow with the document
        combined) model=(--arch attentive_lstm_lm --attention-score combined --memory-slots 35) ;;
        # its features are twice as large as the embeddings, so its output matrix cannot be tied
        amsrn) model=(--arch amsrn_lm_tied_ours --memory-slots 35 --output-layer untied) ;;
        # an output of 200 needs states of 3 and 4 times 200
        key_value_predict) model=(--arch kvp_lstm_lm --decoder-hidden-size 600) ;;
        four_gram) model=(--arch ngram_rnn_lm --ngram-order 4 --decoder-hidden-size 800) ;;
    esac
    training=(bin --user-dir attlm_fairseq --task document_reset_lm --document-order "$order" --bptt 35 \
        --criterion lm_cross_entropy --decoder-embed-dim 200 --decoder-hidden-size 200 --decoder-layers 1 --dropout 0.2 --output-layer tied \
        --optimizer adam --lr 0.003 --lr-scheduler polynomial_decay --warmup-updates 100 --total-num-update "$UPDATES" --clip-norm 5 \
        --batch-size 20 --max-update "$UPDATES" --best-checkpoint-metric ppl --no-epoch-checkpoints --num-workers 0 --log-format simple \
        --save-dir "$system" "${model[@]}" "$@")
    train_model "$system" "" "${training[@]}"
    models+=(--lm "$system=$system/checkpoint_best.pt") checkpoints+=("$system/checkpoint_best.pt")
done

head -n "$FIT" valid.txt > fit.txt
head -n "$TEST" test.txt > part.txt
# results of other models or texts stay in folders of their own
results=tests-$({ echo "$SYSTEMS"; cat fit.txt part.txt "${checkpoints[@]}"; } | cksum | cut -d ' ' -f 1)
mkdir -p "$results"
for kind in $KINDS; do
    found=$results/$kind
    case $kind in
        alone) options=("${models[@]}" --context-sentences 0) ;;
        context) options=("${models[@]}") ;;
        temperature | unigram-cache | neural-cache | adaptation)
            lines=()
            [ "$kind" != adaptation ] || { lines=(--lines "$ADAPT"); found+=-$ADAPT; }
            options=(--config "$found.toml")
            [ -e "$found.toml" ] || attlm fit fit.txt "${models[@]}" --context "$context" --find "$kind" "${lines[@]}" -o "$found.toml" \
                > "$found.fit" 2>&1 || { tail -3 "$found.fit" >&2; exit 1; }
            ;;
    esac
    [ -e "$found.tsv" ] || { attlm ppl part.txt "${options[@]}" --context "$context" > part.tsv; mv part.tsv "$found.tsv"; }
    echo "== test, $kind"
    cut -f 1-3 "$found.tsv"
done
