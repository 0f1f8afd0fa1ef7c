# What the examples' scripts share. Sourced: `source steps.sh` after `here=` the script's own folder.

number=0
changed=

# begin "PROGRAM .." [--fresh]: check the programs and the options, and go to the folder `work` beside the script.
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

# plain_texts FOLDER: train.txt, valid.txt and test.txt here, from those of FOLDER, as .txt or .txt.gz.
plain_texts() {
    local split
    for split in train valid test; do
        [ -e "$split.txt" ] || { gzip -cdf "$(ls "$1/$split".txt*)" > "$split.part" && mv "$split.part" "$split.txt"; }
    done
}
