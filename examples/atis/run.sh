#!/usr/bin/env bash
# Rescoring real ASR 5-best lists (ATIS, Whisper) with a 3-gram, with attentive LMs and with both.
#
# usage: run.sh atis-train.json.gz [FOLDER]
# The lists are those of HyPoradise v0. 7 to 20 minutes on 2 cores; finished steps are kept, and models of other lists or options refused.
set -euo pipefail
here=$(CDPATH="" cd "$(dirname "$0")" && pwd)
source "$here/../steps.sh"
lists=$(realpath "${1:?usage: run.sh atis-train.json.gz [FOLDER]}")
work=${2:-$here/work}

enter "$work"
same_inputs lists.cksum dev.json "$lists"
python "$here/prepare.py" "$lists" .
[ -e lm.arpa ] || attlm ngram train-all.txt -o lm.arpa -n 3
preprocess bin --only-source --trainpref train.txt --validpref valid.txt
for score in single combined; do
    training=(bin --user-dir attlm_fairseq --task sentence_reset_lm --arch attentive_lstm_lm \
        --attention-score "$score" --decoder-embed-dim 256 --decoder-hidden-size 256 --dropout 0.5 \
        --optimizer adam --lr 0.003 --lr-scheduler reduce_lr_on_plateau --lr-shrink 0.5 --lr-patience 1 --clip-norm 5 \
        --batch-size 32 --max-epoch 22 --best-checkpoint-metric ppl --no-epoch-checkpoints --no-last-checkpoints \
        --cpu --distributed-world-size 1 --num-workers 0 --no-progress-bar --save-dir "$score")
    keep_to "$score" "${training[*]}"
    [ -e "$score/done" ] || {
        fairseq-train "${training[@]}" > "$score.log" 2>&1 || { tail -3 "$score.log" >&2; exit 1; }
        touch "$score/done"
    }
done
ngram="--kenlm ngram=lm.arpa"
neural="--lm attentive=single/checkpoint_best.pt:combined/checkpoint_best.pt"
for system in ngram neural both; do
    case $system in
        ngram) lms=$ngram ;;
        neural) lms=$neural ;;
        both) lms="$ngram $neural" ;;
    esac
    echo "== $system"
    # shellcheck disable=SC2086 # options with their arguments
    attlm tune dev.json --metric wer $lms --mbr wer --consensus -o "$system.toml" --report "$system.html"
    echo "== $system, expected loss"
    # shellcheck disable=SC2086
    attlm tune dev.json --metric wer $lms --mbr wer --consensus --objective risk -o "$system.risk.toml"
done
