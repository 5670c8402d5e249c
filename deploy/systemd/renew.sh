#!/usr/bin/env bash
# Issues a new certificate for each listed member and copies it to the member's host.
#
#   renew.sh CA_DIRECTORY MEMBERS CLUSTER ENVIRONMENT
#
# Each line of MEMBERS has a role, an id, an ssh destination whose user may write
# /etc/ringway there and, for a worker, the services in its certificate, separated by
# commas, if it names any. `#` starts a comment. Members reread the new pair without a
# restart. A host that fails does not delay the others.
set -euo pipefail
umask 077

if (( $# != 4 )) || [[ -z $3 || -z $4 ]]; then
	echo "usage: $0 CA_DIRECTORY MEMBERS CLUSTER ENVIRONMENT" >&2
	exit 2
fi
ca=$1 members=$2 cluster=$3 environment=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

renew() { # role id host [services]
	local role=$1 id=$2 host=$3 pair="$work/$2" name=$1 services=()
	[[ -z $4 ]] || services=(--service "$4")
	if [[ $role == gate ]]; then # a gate runs the same binary with the same files
		name=relay
	fi
	mkdir "$pair" &&
		ringway-relay tls cert create --ca "$ca" --role "$role" --node "$id" \
			--cluster "$cluster" --environment "$environment" "${services[@]}" --out "$pair/$name" >/dev/null &&
		# Both files are on the host before the first rename, so the pair does not match
		# only for the duration of a rename.
		tar -C "$pair" -cf - "$name.key" "$name.crt" |
		ssh -o BatchMode=yes "$host" "cd /etc/ringway && mkdir -p next && tar -xf - -C next && chown root:ringway next/$name.* && chmod 640 next/$name.* && mv next/$name.key next/$name.crt ."
}

while read -r role id host services _; do
	[[ -n $role && $role != \#* ]] || continue
	renew "$role" "$id" "$host" "${services%%#*}" || { echo "$id: not renewed" >&2; failed=1; }
done <"$members"
exit "$failed"
