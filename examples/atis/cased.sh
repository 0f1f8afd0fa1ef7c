#!/usr/bin/env bash
# Corrections for hypotheses with case and punctuation, when the references have neither: with and without --text.
#
# usage: cased.sh atis-train.json.gz [FOLDER]
# About 2 minutes of one core. cased.py gives the hypotheses capitals and a sign at the end. Corrections are learned from 3,171 lists; weights
# are tuned and measured on the 793 others.
set -euo pipefail
here=$(CDPATH="" cd "$(dirname "$0")" && pwd)
source "$here/../steps.sh"
lists=$(realpath "${1:?usage: cased.sh atis-train.json.gz [FOLDER]}")
work=${2:-$here/work}

enter "$work"
same_inputs lists.cksum dev.json "$lists"
python "$here/prepare.py" "$lists" .
python "$here/cased.py" train.json > train.cased.json
python "$here/cased.py" dev.json > dev.cased.json
steps=remove-punctuation,lowercase
for text in "" "$steps"; do
    echo "== corrections learned ${text:+with --text $text}"
    rm -f cased.toml answers.txt
    attlm corrections train.cased.json ${text:+--text "$text"} -o cased.tsv
    attlm tune dev.cased.json --metric wer --metric-text "$steps" --corrections cased.tsv --objective risk -o cased.toml \
        | grep -E '^(tuned|input|oracle)'
    attlm rescore dev.cased.json --config cased.toml --to 1best -o answers.txt
    python "$here/cased.py" --compare dev.cased.json answers.txt
done
