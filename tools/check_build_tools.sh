#!/bin/sh
# Usage: check_build_tools.sh PYTHON
# Says which of the things that installing needs are missing, all at once, with the Debian package that brings each.
python=$1
missing=0

lacks() {
    echo "missing: $1; on Debian or Ubuntu: apt-get install $2" >&2
    missing=1
}

if ! "$python" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 13))' 2>/dev/null; then
    echo "missing: Python 3.10, 3.11 or 3.12 (found: ${python:-none}); on Debian or Ubuntu: apt-get install python3 python3-venv python3-dev," >&2
    echo "         or name one: make PYTHON=/path/to/python3.11" >&2
    exit 1
fi
version=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
"$python" -c 'import ensurepip, venv' 2>/dev/null || lacks "Python's venv module ($version)" "$version-venv"
header=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h
[ -f "$header" ] || lacks "Python's headers ($header)" "$version-dev"
command -v g++ >/dev/null || lacks "the C++ compiler g++" "g++"
command -v cmake >/dev/null || lacks "cmake" "cmake"
exit $missing
