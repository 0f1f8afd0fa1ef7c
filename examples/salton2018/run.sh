#!/usr/bin/env bash
# The averaging language models of Salton and Kelleher (2018): everything as in examples/salton2017, with the mean of all states in place of
# attention, and forget gates that begin with a bias of 1.
#
# usage: run.sh ptb|wikitext2 FOLDER [options of fairseq-train ..]
set -euo pipefail
here=$(CDPATH="" cd "$(dirname "$0")" && pwd)
FAMILY=averaging_lstm_lm WORK=${WORK:-$here/work} exec bash "$here/../salton2017/run.sh" "$@"
