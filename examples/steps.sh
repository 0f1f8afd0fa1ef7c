# What the examples' scripts share. Sourced: `source steps.sh` after `here=` the script's own folder.

number=0
kept=" "
apart=  # a pattern: steps that do not depend on the one that is done next

# begin WORK "PROGRAM .." [--fresh]: check the programs and the options, and enter the folder WORK next to the script.
begin() {
    local programs=$2
    work=$here/$1
    shift 2
    if [[ $# -gt 1 || ( $# -eq 1 && $1 != --fresh ) ]]; then
        echo "usage: run.sh [--fresh]" >&2
        exit 2
    fi
    # shellcheck disable=SC2086 # several words
    need $programs
    enter "$work"
    if [[ $# -eq 1 ]]; then
        find . -mindepth 1 -maxdepth 1 ! -name lock -exec rm -rf {} +
    fi
    mkdir -p logs "done"
    local again="the same command"
    [[ $# -eq 0 ]] || again="the same command without --fresh"
    # shellcheck disable=SC2064 # `again` is of now, `number` of then
    trap "echo; echo \"interrupted; $again continues with step \$number\"; exit 130" INT
}

# need PROGRAM ..: stops if one is not on PATH.
need() {
    local program
    for program in "$@"; do
        if ! command -v "$program" >/dev/null; then
            echo "run.sh: no \`$program\` on PATH: activate the environment that \`make install\` makes" >&2
            exit 2
        fi
    done
}

# enter FOLDER: make it and go there; a folder with other files is refused. It is locked for as long as this script or a program that it started lives: what an ended script left
# running would write over what the next one makes.
enter() {
    need python
    mkdir -p "$1"
    CDPATH="" cd "$1"
    if [[ ! -e lock && -n $(ls -A) ]]; then
        echo "run.sh: $PWD holds files that this script could overwrite: move them, or name another folder; if an earlier run.sh has made \
them, make an empty file $PWD/lock" >&2
        exit 2
    fi
    exec 9>>lock
    if ! python -c "$LOCK"; then
        echo "run.sh: $PWD is in use: another run.sh, or a program of one that has ended, is at work there; wait for it or end it" >&2
        exit 2
    fi
}

# Locks file 9; not on file systems that have no locks.
LOCK='
import fcntl, sys
try:
    fcntl.flock(9, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.exit(1)
except OSError:
    pass
'

# step NAME OUTPUT WHAT COMMAND: run the command unless its OUTPUT is there already, made by the same command after the same steps. Whether
# somebody has changed their outputs since is not looked at.
step() {
    local name=$1 output=$2 what=$3 command=$4 started=$SECONDS mark
    number=$((number + 1))
    echo "[$number] $what"
    echo "    $command"
    if [[ -e $output && -e done/$name && $(<"done/$name") == "$command" ]]; then
        echo "    done before"
        kept+="$name "
        return
    fi
    for mark in done/*; do  # what was made of an older output of this step is not done any more, whenever this run ends
        # shellcheck disable=SC2053 # a pattern
        [[ $kept == *" ${mark#done/} "* || ${mark#done/} == $apart ]] || rm -f "$mark"
    done
    rm -rf "$output"
    if ! bash -euo pipefail -c "$command" >"logs/$name.log" 2>&1; then
        echo "    failed; the end of $work/logs/$name.log:" >&2
        tail -n 15 "logs/$name.log" >&2
        exit 1
    fi
    echo "$command" >"done/$name"
    kept+="$name "
    echo "    $((SECONDS - started)) s"
}

# whole_numbers NAME ..: stops unless each of these variables is a whole number from 1 on. To fairseq 0 epochs mean no limit.
whole_numbers() {
    local name
    for name in "$@"; do
        [[ ${!name} =~ ^[1-9][0-9]*$ ]] || { echo "run.sh: found $name=${!name}, expected a whole number from 1 on" >&2; exit 2; }
    done
}

# whole_numbers_or_0 NAME ..: the same from 0 on.
whole_numbers_or_0() {
    local name
    for name in "$@"; do
        [[ ${!name} == 0 ]] || whole_numbers "$name"
    done
}

# known_names NAME KNOWN ..: stops unless the words of the variable are some of those known.
known_names() {
    local variable=$1 word
    shift
    for word in ${!variable}; do
        [[ " $* " == *" $word "* ]] || { echo "run.sh: found $word in $variable, expected some of $*" >&2; exit 2; }
    done
}

# text_of FOLDER SPLIT: prints the path of FOLDER/SPLIT.txt, or else of FOLDER/SPLIT.txt.gz.
text_of() {
    local file=$1/$2.txt
    [[ -e $file ]] || file=$file.gz
    if [[ ! -e $file ]]; then
        echo "run.sh: $1 holds neither $2.txt nor $2.txt.gz" >&2
        exit 2
    fi
    echo "$file"
}

# plain_texts FOLDER [COMMAND ..]: train.txt, valid.txt and test.txt here, from those of FOLDER, as .txt or else .txt.gz, by the command
# (default: gzip -cdf). Stops where other texts are here already: what was made of them would be taken for that of these.
plain_texts() {
    local folder=$1 split file
    shift
    [[ $# -gt 0 ]] || set -- gzip -cdf
    for split in train valid test; do
        file=$(text_of "$folder" "$split")
        "$@" "$file" >"$split.part"
        if [[ ! -e $split.txt ]]; then
            mv "$split.part" "$split.txt"
        elif ! cmp -s "$split.part" "$split.txt"; then
            rm "$split.part"
            echo "run.sh: $PWD/$split.txt is not the text of $file: remove $PWD to start over, or choose another folder" >&2
            exit 2
        fi
        rm -f "$split.part"
    done
}

# preprocess FOLDER OPTION ..: fairseq-preprocess with these options into FOLDER, unless it is there. What a killed run left in FOLDER.part is
# made again. The log is preprocess.log.
preprocess() {
    local folder=$1
    shift
    [ ! -e "$folder" ] || return 0
    rm -rf "$folder.part"
    fairseq-preprocess "$@" --destdir "$folder.part" >preprocess.log 2>&1 || { tail -5 preprocess.log >&2; return 1; }
    mv "$folder.part" "$folder"
}

# binarise [OPTION ..]: fairseq's dictionary and binary data in bin, of train.txt, valid.txt and test.txt.
binarise() {
    preprocess bin --only-source --trainpref train.txt --validpref valid.txt --testpref test.txt "$@"
}

# keep_to FOLDER OPTIONS: stops where the folder holds a model that was trained with other options, which would be trained on with these, or
# taken for theirs. Otherwise FOLDER/options keeps them.
keep_to() {
    mkdir -p "$1"
    if compgen -G "$1/checkpoint*.pt" >/dev/null && [[ -e $1/options && $(<"$1/options") != "$2" ]]; then
        echo "run.sh: $PWD/$1 was trained with other options, those in its file options: remove it, or choose another folder" >&2
        exit 2
    fi
    echo "$2" >"$1/options"
}

# run_fairseq_train OPTION ..: fairseq-train with these options. PROCESSES=N are N processes of this machine's CPU, each with its own batches; their
# gradients are added up.
run_fairseq_train() {
    local -x GLIBC_TUNABLES=${GLIBC_TUNABLES:-glibc.malloc.hugetlb=1}  # large pages
    if [[ $PROCESSES -eq 1 ]]; then
        fairseq-train "$@"
    else
        torchrun --standalone --nproc-per-node "$PROCESSES" --no-python bash -c 'exec fairseq-train "$@" --cpu --distributed-no-spawn \
            --distributed-world-size "$WORLD_SIZE" --distributed-rank "$RANK" --distributed-init-method env:// --distributed-backend gloo \
            --ddp-backend legacy_ddp' fairseq-train "$@"
    fi
}

# train_model NAME BEGINNING OPTION ..: fairseq-train with these options into the folder NAME, unless it is done; NAME.log keeps the log of all
# its runs. Stops if the folder holds a model of other options. BEGINNING, kept with the options, says what model it begins with.
train_model() {
    local name=$1 beginning=$2 before=0
    shift 2
    [[ $PROCESSES -eq 1 ]] || beginning+="; $PROCESSES processes"
    keep_to "$name" "$*$beginning"
    [ ! -e "$name/done" ] || return 0
    compgen -G "$name/checkpoint*.pt" >/dev/null || rm -f "$name.log"
    [ ! -e "$name.log" ] || before=$(wc -l <"$name.log")
    echo "== $name"
    run_fairseq_train "$@" 2>&1 | tee -a "$name.log" | grep -E "train_inner|initialised|valid on|done training|rror" || {
        # one of bad input is printed already
        if tail -n +$((before + 1)) "$name.log" | grep "attlm: error" >/dev/null; then return 2; fi
        tail -5 "$name.log"
        return 1
    }
    touch "$name/done"
}

# same_inputs RECORD MADE FILE ..: stops if MADE is in this folder and was made of other files; RECORD keeps a checksum of theirs.
same_inputs() {
    local name=$1 made=$2 sum held=
    shift 2
    sum=$(cat "$@" | cksum)
    [[ ! -e $name ]] || held=$(<"$name")
    if [[ -e $made && $held != "$sum" ]]; then
        echo "run.sh: $PWD was made of other files than $*: remove it to start over, or choose another folder" >&2
        exit 2
    fi
    echo "$sum" >"$name"
}

# same_settings MADE NAME=VALUE ..: stops if MADE is in this folder and was made with other settings, which the file `settings` keeps.
same_settings() {
    local made=$1 held="other settings"
    shift
    [[ ! -e settings ]] || held=$(<settings)
    if [[ -e $made && $held != "$*" ]]; then
        echo "run.sh: $PWD was made with $held, not $*: remove it to start over, or choose another folder with WORK=" >&2
        exit 2
    fi
    echo "$*" >settings
}

PROCESSES=${PROCESSES:-1}
whole_numbers PROCESSES
