#!/usr/bin/env bash
# How many lists corrections need: learned from 50 to all 3,171 ATIS lists, with 5, 20 and 100 candidates for each of the 793 others.
#
# usage: learning_curve.sh atis-train.json.gz [FOLDER]
# About 3 minutes of one core. Each row: WER in 5-fold cross-validation with its 95 % interval, then the oracle of the expanded lists.
set -euo pipefail
here=$(CDPATH="" cd "$(dirname "$0")" && pwd)
source "$here/../steps.sh"
lists=$(realpath "${1:?usage: learning_curve.sh atis-train.json.gz [FOLDER]}")
work=${2:-$here/work}

enter "$work"
same_inputs lists.cksum dev.json "$lists"
python "$here/prepare.py" "$lists" .
for count in 50 200 1000 3171; do
    python -c "import json; json.dump(json.load(open('train.json'))[:$count], open('some.json', 'w'))"
    attlm corrections some.json -o "some.$count.tsv"
    for candidates in 5 20 100; do
        echo "== learned from $count lists, $candidates candidates"
        rm -f some.toml
        attlm tune dev.json --metric wer --corrections "some.$count.tsv" --candidates "$candidates" --objective risk \
            -o some.toml | grep -E '^(tuned, 5-fold|oracle)'
    done
done
