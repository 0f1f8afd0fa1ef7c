#!/usr/bin/env bash
# Corrections learned from ATIS lists: candidates that no list holds, alone, with the n-gram LM of the search, and with attentive LMs.
#
# usage: corrections.sh atis-train.json.gz [FOLDER]
# Learns from the lists whose index is not a multiple of 5, tunes and measures on the 793 others. About 2 minutes on 2 cores. With the LMs
# of run.sh in the same FOLDER these take part too.
set -euo pipefail
here=$(CDPATH="" cd "$(dirname "$0")" && pwd)
source "$here/../steps.sh"
lists=$(realpath "${1:?usage: corrections.sh atis-train.json.gz [FOLDER]}")
work=${2:-$here/work}

enter "$work"
same_inputs lists.cksum dev.json "$lists"
python "$here/prepare.py" "$lists" .
attlm corrections train.json -o corrections.tsv
attlm corrections eval dev.json --table corrections.tsv > corrections.txt
tune=(attlm tune dev.json --metric wer --corrections corrections.tsv --objective risk)
echo "== corrections, chosen without an LM"
"${tune[@]}" --without search_lm --without search_oov -o corrections.alone.toml
echo "== corrections and the 4-gram of the search"
"${tune[@]}" -o corrections.toml --report corrections.html
if [ -e single/done ] && [ -e combined/done ]; then
    echo "== the same with both attentive LMs as an ensemble"
    "${tune[@]}" --lm attentive=single/checkpoint_best.pt:combined/checkpoint_best.pt --mbr wer -o corrections.attentive.toml
fi
echo "== weights from jack-knifed training lists: nothing of dev.json was seen"
attlm tune train.json --metric wer --corrections corrections.tsv --objective risk -o corrections.jackknifed.toml
attlm eval dev.json --metric wer --config corrections.jackknifed.toml
