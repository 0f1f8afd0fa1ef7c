#!/usr/bin/env bash
# What context is worth in rescoring: the quickstart's test sentences are consecutive sentences of manual pages and modules.
#
#   ../quickstart/run.sh && ./conversations.sh        goes on where it stopped; --fresh starts over
#
# An attentive LM is trained over those documents. Lists are rescored by single sentences, after the texts chosen before, with caches, and
# with dynamic evaluation. Everything is fitted and tuned on dev; the intervals draw documents. SYSTEMS="sentences context" does some of the rows;
# `adapt`, dynamic evaluation, takes most of the time. UPDATES (default 1200) are those of the LM.
set -euo pipefail
here=$(CDPATH="" cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../steps.sh"
all_systems="ngram ngram-cache sentences context cache both-sentences both-caches adapt"
SYSTEMS=${SYSTEMS:-$all_systems} UPDATES=${UPDATES:-1200}
# shellcheck disable=SC2086 # several words
known_names SYSTEMS $all_systems
whole_numbers UPDATES
begin work-conversations "python fairseq-preprocess fairseq-train attlm" "$@"
quickstart=../../quickstart/work
for made in ngram dev test; do  # steps: a file may be there before it is whole
    if [ ! -e "$quickstart/done/$made" ]; then
        echo "conversations.sh: step $made of examples/quickstart/run.sh is not done: run that first" >&2
        exit 2
    fi
done

sum=$(cat "$quickstart"/{train,dev,test}.txt "$quickstart"/{dev,test}.jsonl "$quickstart/lm.arpa" | cksum)
step topics train.txt "the quickstart's texts, by document" \
    "python ../topics.py $quickstart .  # $sum"  # so all steps are done again if the quickstart has other results
step binarise data "fairseq's dictionary and binary data" \
    "fairseq-preprocess --only-source --trainpref train.txt --validpref dev.txt --destdir data"
step train model "a small attentive LSTM language model, over documents" \
    "fairseq-train data --user-dir attlm_fairseq --task document_reset_lm --bptt 35 --batch-size 16 --arch attentive_lstm_lm \
--decoder-embed-dim 256 --decoder-hidden-size 256 --decoder-layers 1 --dropout 0.3 --init-range 0.1 --criterion lm_cross_entropy \
--optimizer adam --lr 0.006 --lr-scheduler polynomial_decay --warmup-updates 60 --total-num-update $UPDATES --clip-norm 5 \
--max-update $UPDATES --best-checkpoint-metric ppl --cpu --distributed-world-size 1 --num-workers 0 \
--save-dir model --no-epoch-checkpoints --log-format simple"
lm="--lm lm=model/checkpoint_best.pt"
ngram="--kenlm ngram=$quickstart/lm.arpa"
for kind in neural-cache adaptation; do
    step "fit-$kind" "$kind.toml" "fit: $kind" \
        "attlm fit dev.txt $lm --context blank --find $kind --lines 400 -o $kind.toml"
done
step fit-unigram-cache unigram-cache.toml "fit: unigram cache of the n-gram LM" \
    "attlm fit dev.txt $ngram --context blank --find unigram-cache -o unigram-cache.toml"
# fitted FILE NAME OPTION LM: the option with the value that `attlm fit` wrote for NAME, or nothing if it found no gain
fitted() { sed -n "s/^$2 = \"\(.*\)\"$/$3 $4=\1/p" "$1"; }
cache=$(fitted neural-cache.toml neural_cache --neural-cache lm)
counts=$(fitted unigram-cache.toml unigram_cache --unigram-cache ngram)
adapt=$(fitted adaptation.toml adapt --adapt lm)

outputs= gains=()
for system in $SYSTEMS; do
    apart="@(tune|rescore)-!($system)"  # systems do not depend on each other
    case $system in
        ngram) what="n-gram" models=$ngram ;;
        ngram-cache) what="n-gram with a unigram cache" models="$ngram $counts" ;;
        sentences) what="attentive LM, single sentences" models="$lm --context-sentences 0" ;;
        context) what="attentive LM after the sentences before" models=$lm ;;
        cache) what="... with a neural cache" models="$lm $cache" ;;
        adapt) what="attentive LM with dynamic evaluation" models="$lm $adapt" ;;
        both-sentences) what="n-gram and attentive LM, single sentences" models="$ngram $lm --context-sentences 0" ;;
        both-caches) what="n-gram and attentive LM, context and caches" models="$ngram $counts $lm $cache" ;;
    esac
    step "tune-$system" "$system.toml" "$what: tune the weights on dev" \
        "attlm tune $quickstart/dev.jsonl $models --context file:dev.documents --folds 0 -o $system.toml"
    step "rescore-$system" "$system.jsonl" "$what: rescore test" \
        "attlm rescore $quickstart/test.jsonl --config $system.toml --context file:test.documents -o $system.jsonl"
    outputs+=" $system.jsonl"
done
apart="@(tune|rescore)-*"
step errors errors.txt "word error rates on test" \
    "attlm eval $quickstart/test.jsonl$outputs --context file:test.documents > errors.txt"
for pair in "ngram ngram-cache" "sentences context" "sentences cache" "sentences adapt" "both-sentences both-caches"; do
    read -r first second <<< "$pair"
    [[ " $SYSTEMS " == *" $first "* && " $SYSTEMS " == *" $second "* ]] || continue
    step "gain-$second" "gain-$second.txt" "what $second adds to $first" \
        "attlm eval $first.jsonl $second.jsonl --context file:test.documents > gain-$second.txt"
    gains+=("gain-$second.txt")
done
echo
cat errors.txt
for gain in "${gains[@]}"; do sed -n 3p "$gain"; done
