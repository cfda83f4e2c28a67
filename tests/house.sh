#!/bin/bash
# What `make lint` holds of the shape of the source: tests/house.sh
#   sizes    no file over 900 lines, no function over 60 but those listed     (tests/sizes.py)
#   folders  no two include each other, and docs/source.md names each         (tests/folders.py)
#   lists    kernels, operators and passes stand in one list each             (tests/lists.py)
#   words    none of tests/words.txt in comments and printed strings          (tests/words.py)
#   patches  those of `make house-test` still apply to the tree
#   walk     from a submission to its price: at most 8 files and 15 returns   (tests/walk.py --price)
set -u
cd "$(dirname "$0")/.." || exit 1
failed=0

hold() { # WHAT COMMAND...
    echo "  HOUSE $1"
    shift
    "$@" || failed=1
}

hold "the measure of sizes" python3 tests/sizes.py --self-test
hold "sizes of files and functions" python3 tests/sizes.py
hold "the measure of folders" python3 tests/folders.py --self-test
hold "folders that include each other" python3 tests/folders.py
hold "the measure of lists" python3 tests/lists.py --self-test
hold "second lists of kernels and operators" python3 tests/lists.py
hold "plain English" python3 tests/words.py
for patch in tests/house/*.patch; do
    hold "$patch applies" patch --dry-run --silent --force -p1 -i "$patch"
done
hold "walk to a price" python3 tests/walk.py --price --most 8 15
exit $failed
