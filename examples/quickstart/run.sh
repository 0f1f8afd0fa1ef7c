#!/usr/bin/env bash
# What `make demo` runs: from a text to rescored n-best lists, in the folder `work` next to this script.
#
#   run.sh            does what has not been done yet (a step runs again when its command, or a step before it, has changed)
#   run.sh --fresh    starts over
#
# The commands are printed as they run; each can be repeated by hand in the folder `work`.
set -euo pipefail

here=$(CDPATH="" cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../steps.sh"
begin work "python fairseq-preprocess fairseq-train attlm" "$@"
# By default torch's threads keep their core busy while they wait: on a machine with other work, training would be several times slower.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}

echo "in $work:"
step corpus train.txt "English sentences from Python's manual and docstrings" \
    "python ../corpus.py ."
step binarise data "fairseq's dictionary and binary data" \
    "fairseq-preprocess --only-source --trainpref train.txt --validpref dev.txt --testpref test.txt --destdir data"
step train model "a small attentive LSTM language model, 2 epochs (about two minutes)" \
    "fairseq-train data --user-dir attlm_fairseq --task sentence_reset_lm --arch attentive_lstm_lm \
--decoder-embed-dim 256 --decoder-hidden-size 256 --decoder-layers 1 --dropout 0.3 --init-range 0.1 \
--optimizer adam --lr 0.009 --lr-scheduler polynomial_decay --warmup-updates 60 --total-num-update 720 --clip-norm 5 \
--max-tokens 600 --batch-order length --max-epoch 2 --cpu --distributed-world-size 1 --num-workers 0 --save-dir model --no-epoch-checkpoints --log-format simple"
step ngram lm.arpa "a 4-gram language model with KenLM" \
    "attlm ngram train.txt -o lm.arpa -n 4"
for split in dev test; do
    step "$split" "$split.jsonl" "$split: type it with errors, then guess what was meant: the 20 best sentences each" \
        "python ../noisy_channel.py corrupt $split.txt --seed 1 > $split.typed && \
python ../noisy_channel.py decode $split.typed --train train.txt --refs $split.txt -n 20 > $split.jsonl"
done
step corrections corrections.tsv "typical errors of the decoder, learned from dev" \
    "attlm corrections dev.jsonl -o corrections.tsv"
for system in ngram attentive both corrected; do
    case $system in
        # cross-validation takes longer than tuning: only for the systems that may be kept
        ngram) what="the n-gram alone" models="--kenlm ngram=lm.arpa" folds="--folds 0" ;;
        attentive) what="the attentive LM alone" models="--lm attentive=model/checkpoint_best.pt" folds="--folds 0" ;;
        both) what="both" models="--kenlm ngram=lm.arpa --lm attentive=model/checkpoint_best.pt" folds="--folds 5" ;;
        # each list of dev gets what was learned from the other lists
        corrected) what="the n-gram and corrections" models="--kenlm ngram=lm.arpa --corrections corrections.tsv" folds="--folds 5" ;;
    esac
    step "tune-$system" "$system.toml" "$what: tune the weights on dev" \
        "attlm tune dev.jsonl $models $folds -o $system.toml"
    step "rescore-$system" "test.$system.jsonl" "$what: rescore test" \
        "attlm rescore test.jsonl --config $system.toml -o test.$system.jsonl"
done
step perplexity perplexity.tsv "perplexities on test" \
    "attlm ppl test.txt --config both.toml > perplexity.tsv"
step errors errors.txt "word error rates on test: as decoded, rescored, and the best that the lists hold" \
    "attlm eval test.jsonl test.ngram.jsonl test.attentive.jsonl test.both.jsonl test.corrected.jsonl > errors.txt"
step gain gain.txt "does the attentive LM add to the n-gram?" \
    "attlm eval test.ngram.jsonl test.both.jsonl > gain.txt"

echo
cut -f 1-3 perplexity.tsv
echo
cat errors.txt
echo
grep -v oracle gain.txt
echo
echo "$SECONDS s. The lists, models and weights are in $work"
