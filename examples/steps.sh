# What the examples' scripts share. Sourced: `source steps.sh` after `here=` the script's own folder.

number=0
changed=

# begin "PROGRAM .." [--fresh]: check the programs and the options, and go to the folder `work` next to the script.
begin() {
    local programs=$1 command
    shift
    work=$here/work
    if [[ $# -gt 1 || ( $# -eq 1 && $1 != --fresh ) ]]; then
        echo "usage: run.sh [--fresh]" >&2
        exit 2
    fi
    for command in $programs; do
        if ! command -v "$command" >/dev/null; then
            echo "run.sh: no \`$command\` on PATH: activate the environment that \`make install\` makes" >&2
            exit 2
        fi
    done
    if [[ $# -eq 1 ]]; then
        rm -rf "$work"
    fi
    mkdir -p "$work/logs" "$work/done"
    cd "$work"
}

# step NAME OUTPUT WHAT COMMAND: run the command unless its OUTPUT is there already, made by the same command from the same inputs.
step() {
    local name=$1 output=$2 what=$3 command=$4 started=$SECONDS
    number=$((number + 1))
    echo "[$number] $what"
    echo "    $command"
    if [[ ! $changed && -e $output && -e done/$name && $(<"done/$name") == "$command" ]]; then
        echo "    done before"
        return
    fi
    changed=yes
    rm -rf "$output" "done/$name"
    if ! bash -euo pipefail -c "$command" >"logs/$name.log" 2>&1; then
        echo "    failed; the end of $work/logs/$name.log:" >&2
        tail -n 15 "logs/$name.log" >&2
        exit 1
    fi
    echo "$command" >"done/$name"
    echo "    $((SECONDS - started)) s"
}

# plain_texts FOLDER [COMMAND ..]: train.txt, valid.txt and test.txt here, from those of FOLDER, as .txt or else .txt.gz, by the command
# (default: gzip -cdf). Stops where other texts are here already: what was made of them would be taken for that of these.
plain_texts() {
    local folder=$1 split file
    shift
    [[ $# -gt 0 ]] || set -- gzip -cdf
    for split in train valid test; do
        file=$folder/$split.txt
        [[ -e $file ]] || file=$file.gz
        if [[ ! -e $file ]]; then
            echo "run.sh: $folder holds neither $split.txt nor $split.txt.gz" >&2
            exit 2
        fi
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

# same_inputs NAME FILE ..: stops where what is in this folder was made of other files; NAME keeps a checksum of theirs.
same_inputs() {
    local name=$1 sum
    shift
    sum=$(cat "$@" | cksum)
    if [[ -e $name && $(<"$name") != "$sum" ]]; then
        echo "run.sh: $PWD was made of other files than $*: remove it to start over, or choose another folder" >&2
        exit 2
    fi
    echo "$sum" >"$name"
}
