#!/bin/sh
# mutate.sh [PATTERN]: applies every line of tests/mutations that matches to a copy of the tree under
# build/mutants, builds the suite it names and expects it to fail. Says which breaks went unnoticed.
set -u
cd "$(dirname "$0")/.." || exit 2
copy=build/mutants
mkdir -p $copy
git ls-files -z | tar c --null -T - | tar x -C $copy
make -C $copy -s -j2 all plugins >/dev/null 2>&1 || { echo "the copy does not build"; exit 2; }
n=0 missed=0
sed 's/\\|/\x01/g' tests/mutations | grep -v '^#' | grep -e "${1:-.}" >$copy/list
while IFS='|' read -r suite file old new; do
    suite=$(echo $suite) file=$(echo $file)
    old=$(printf %s "$old" | sed 's/^ //;s/ $//' | tr '\001' '|')
    new=$(printf %s "$new" | sed 's/^ //;s/ $//' | tr '\001' '|')
    n=$((n + 1))
    OLD=$old NEW=$new perl -0pe 'BEGIN{$o=$ENV{OLD};$n=$ENV{NEW}} $k = s/\Q$o\E/$n/g; END{exit($k != 1)}' \
        "$file" >$copy/mutant || { echo "stands not once: $file: $old"; missed=$((missed + 1)); continue; }
    cp $copy/mutant "$copy/$file"
    if ! make -C $copy -s build/tests/$suite build/unmask >$copy/log 2>&1; then
        echo "does not build: $file: $new"; missed=$((missed + 1))
    elif (cd $copy && timeout 300 build/tests/$suite >log 2>&1 </dev/null); then
        echo "unnoticed by $suite: $file: $old -> $new"; missed=$((missed + 1))
    fi
    cp "$file" "$copy/$file"
done <$copy/list
echo "$((n - missed)) of $n deliberate breaks were noticed"
[ $missed = 0 ]
