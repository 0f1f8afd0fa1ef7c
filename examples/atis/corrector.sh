#!/usr/bin/env bash
# A neural corrector: an LSTM translation model with the attentive LM as its decoder, from hypothesis to reference, as one more source of
# candidates next to the corrections of corrections.sh.
#
# usage: corrector.sh atis-train.json.gz [FOLDER]
# Trains on the lists whose index is not a multiple of 5, tunes and measures on the 793 others.
set -euo pipefail
here=$(CDPATH="" cd "$(dirname "$0")" && pwd)
source "$here/../steps.sh"
lists=$(realpath "${1:?usage: corrector.sh atis-train.json.gz [FOLDER]}")
work=${2:-$here/work}

enter "$work"
same_inputs lists.cksum dev.json "$lists"
python "$here/prepare.py" "$lists" .
[ -e corrections.tsv ] || attlm corrections train.json -o corrections.tsv
[ -e pairs ] || attlm corrections pairs train.json -o pairs
preprocess pairs-bin -s hyp -t ref --joined-dictionary --trainpref pairs/train --validpref pairs/valid
training=(pairs-bin --user-dir attlm_fairseq --task translation -s hyp -t ref --arch attentive_lstm \
    --encoder-embed-dim 192 --encoder-hidden-size 96 --encoder-bidirectional --decoder-embed-dim 192 --decoder-hidden-size 192 \
    --dropout 0.2 --optimizer adam --lr 0.0015 --lr-scheduler inverse_sqrt --warmup-updates 300 --warmup-init-lr 1e-5 --clip-norm 1 \
    --batch-size 32 --max-epoch 30 --best-checkpoint-metric ppl --no-epoch-checkpoints --no-last-checkpoints \
    --cpu --distributed-world-size 1 --num-workers 0 --no-progress-bar --save-dir corrector)
keep_to corrector "${training[*]}"
[ -e corrector/done ] || {
    fairseq-train "${training[@]}" > corrector.log 2>&1 || { tail -3 corrector.log >&2; exit 1; }
    touch corrector/done
}
tune=(attlm tune dev.json --metric wer --objective risk --corrector corrector/checkpoint_best.pt)
echo "== the neural corrector alone, with its own score"
"${tune[@]}" -o corrector.alone.toml
echo "== with corrections and the 4-gram of the search"
"${tune[@]}" --corrections corrections.tsv -o corrector.toml
