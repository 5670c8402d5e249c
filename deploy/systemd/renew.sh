#!/usr/bin/env bash
# Issues a new certificate for each member of a list and writes it to its host.
#
#   renew.sh CA_DIRECTORY MEMBERS CLUSTER ENVIRONMENT
#
# MEMBERS has a line for each: its role, its id, and where ssh reaches its host, as a
# user who may write /etc/ringway there. `#` begins a comment. The members take the new
# pair by themselves. A host that fails does not hold up the others.
set -euo pipefail
umask 077

if (( $# != 4 )); then
	echo "usage: $0 CA_DIRECTORY MEMBERS CLUSTER ENVIRONMENT" >&2
	exit 2
fi
ca=$1 members=$2 cluster=$3 environment=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

renew() { # role id host
	local role=$1 id=$2 host=$3 pair="$work/$2" name=$1
	if [[ $role == gate ]]; then # it runs the same binary, with the same files
		name=relay
	fi
	mkdir "$pair" &&
		relay tls cert create --ca "$ca" --role "$role" --node "$id" \
			--cluster "$cluster" --environment "$environment" --out "$pair/$name" >/dev/null &&
		# Both files are there before the first is renamed: the member finds half a
		# pair for no longer than a rename takes.
		tar -C "$pair" -cf - "$name.key" "$name.crt" |
		ssh -o BatchMode=yes "$host" "cd /etc/ringway && mkdir -p next && tar -xf - -C next && chown root:ringway next/$name.* && chmod 640 next/$name.* && mv next/$name.key next/$name.crt ."
}

while read -r role id host _; do
	[[ -n $role && $role != \#* ]] || continue
	renew "$role" "$id" "$host" || { echo "$id: not renewed" >&2; failed=1; }
done <"$members"
exit "$failed"
