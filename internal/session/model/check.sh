#!/usr/bin/env bash
# Explores all states of session.pml, which must be right, and of the model with each of its faults,
# which must be found. Needs spin and a C compiler.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
model=$PWD/session.pml
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"

# explore OPTIONS FLAGS: explores the model with macros of spin, by a program with flags of the
# compiler. The result is in out.
explore() {
	# shellcheck disable=SC2086 # both are lists
	spin $1 -a "$model" && "${CC:-cc}" -O2 -DSAFETY -DCOLLAPSE $2 -o pan pan.c && ./pan -m200000 -w26 >out
}

explore "" ""
if grep -q 'Search not completed' out || ! grep -q 'errors: 0' out; then
	cat out
	spin -t -p -g "$model" | tail -60
	exit 1
fi
echo "right: $(awk '/states, stored/ { print $1 }' out) states"

for fault in MOVED_IS_LEAVE NEWEST_ROW FIRST_OF_ROW NO_BEATS; do
	explore "-D$fault" -DBFS # breadth first: the trail is one of the shortest
	if ! grep -q 'assertion violated' out; then
		echo "the fault $fault is not found" >&2
		exit 1
	fi
	steps=$(sed -n 's/.*(at depth \([0-9]*\)).*/\1/p' out)
	echo "$fault: found after $steps steps"
done
