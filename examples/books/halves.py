"""Split lists (HyPoradise JSON) into those with even and odd numbers: NAME.even.json, NAME.odd.json."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: halves.py LISTS.json[.gz] NAME")
    source, name = sys.argv[1:]
    data = Path(source).read_bytes()
    try:
        lists = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    except ValueError as error:
        sys.exit(f"halves.py: {source} is not JSON: {error}")
    if not isinstance(lists, list):
        sys.exit(f"halves.py: {source}: expected a JSON array of lists, as HyPoradise has")
    for half, part in (("even", lists[::2]), ("odd", lists[1::2])):
        unfinished = Path(f"{name}.{half}.json.part")  # renamed when whole: run.sh takes NAME.odd.json as a sign that both are there
        unfinished.write_text(json.dumps(part, ensure_ascii=False), encoding="utf-8")
        unfinished.rename(f"{name}.{half}.json")
