#!/usr/bin/env bash
# CTC decoding with language models inside the decoder: from a text to emissions, models, and word error rates with and without them.
#
#   run.sh            does what has not been done yet (a step runs again when its command, or a step before it, has changed)
#   run.sh --fresh    starts over
#
# The commands are printed as they run; each can be repeated by hand in the folder `work`.
set -euo pipefail

here=$(CDPATH="" cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../../steps.sh"
need python
if ! failed=$(python -c "import flashlight.lib.text.decoder" 2>&1); then
    echo "run.sh: flashlight-text is not installed, or does not load (${failed##*$'\n'}): pip install flashlight-text" >&2
    exit 2
fi
begin work "python fairseq-preprocess fairseq-train attlm" "$@"
# By default torch's threads keep their core busy while they wait: on a machine with other work, training would be several times slower.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}

echo "in $work:"
step corpus train.txt "English sentences from Python's manual and docstrings, as in the quickstart" \
    "python ../../../quickstart/corpus.py ."
for split in dev test; do
    case $split in dev) count=20 ;; test) count=24 ;; esac
    step "$split" "$split.npz" "$split: what an acoustic model would say of $count sentences" \
        "python ../emissions.py $split.txt --sentences $count --seed 1 -o $split.npz"
done
step binarise data "fairseq's dictionary and binary data" \
    "fairseq-preprocess --only-source --trainpref train.txt --validpref dev.txt --destdir data"
step train model "a small attentive LSTM language model (less than a minute)" \
    "fairseq-train data --user-dir attlm_fairseq --task sentence_reset_lm --arch attentive_lstm_lm --criterion lm_cross_entropy \
--decoder-embed-dim 128 --decoder-hidden-size 128 --decoder-layers 1 --dropout 0.2 --init-range 0.1 \
--optimizer adam --lr 0.008 --lr-scheduler polynomial_decay --warmup-updates 60 --total-num-update 360 --clip-norm 5 \
--max-tokens 600 --batch-order length --max-epoch 1 --cpu --distributed-world-size 1 --num-workers 0 --save-dir model --no-epoch-checkpoints --log-format simple"
step ngram lm.arpa "a 4-gram language model with KenLM" \
    "attlm ngram train.txt -o lm.arpa -n 4"
step names names.txt "phrases to prefer: all words of the held-out text that the training text lacks" \
    "awk 'NR == FNR { for (i = 1; i <= NF; i++) known[\$i]; next } { for (i = 1; i <= NF; i++) if (!(\$i in known)) print \$i }' \
train.txt test.txt | sort -u > names.txt"
# One hypothesis at a time is too little work for threads to share.
step decode results.txt "decode, greedily and with each language model" \
    "OMP_NUM_THREADS=1 python ../decode.py test.npz --train train.txt --kenlm lm.arpa --lm model/checkpoint_best.pt --phrases names.txt > results.txt"

echo
cat results.txt
echo
echo "$SECONDS s. Emissions and models are in $work"
