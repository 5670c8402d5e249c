#!/usr/bin/env bash
# Makes what the members of compose.yaml prove themselves with: an authority, a
# certificate for each member, a gossip key, and a token for the admin API. One folder for each member, which
# is mounted into its container. What is there already is kept.
#
#   deploy/secrets.sh RELAY_BINARY DIRECTORY
#
# For a try. In production the certificates come from your own authority, and its
# key is on no machine of the fleet.
set -euo pipefail
umask 077

if (( $# != 2 )); then
	echo "usage: $0 RELAY_BINARY DIRECTORY" >&2
	exit 2
fi
relay=$1 dir=$2
cluster=shop environment=demo # as in compose.yaml
# Who the images run as. Nobody but root can give files away, so others run the
# containers as themselves: RINGWAY_USER, see `make up`.
owner=65532

mkdir -p "$dir"
if [[ ! -e $dir/ca/ca.key ]]; then
	"$relay" tls ca create --out "$dir/ca" --name ringway-compose --days 365 >/dev/null
fi
if [[ ! -s $dir/gossip.keys ]]; then
	"$relay" keys generate >"$dir/gossip.keys"
fi
if [[ ! -s $dir/admin.token ]]; then
	"$relay" keys generate >"$dir/admin.token" # 32 random bytes are a token as well
fi
# Prometheus runs as somebody else in its container, and asks with the token, too.
mkdir -p "$dir/prometheus"
cp "$dir/admin.token" "$dir/prometheus/admin.token"
chmod 755 "$dir/prometheus"
chmod 644 "$dir/prometheus/admin.token"

member() { # role id
	local role=$1 id=$2
	mkdir -p "$dir/$id"
	if [[ ! -e $dir/$id/tls.key ]]; then
		"$relay" tls cert create --ca "$dir/ca" --role "$role" --node "$id" --days 300 \
			--cluster "$cluster" --environment "$environment" --out "$dir/$id/tls" >/dev/null
	fi
	cp "$dir/ca/ca.crt" "$dir/$id/ca.crt"
	cp "$dir/admin.token" "$dir/$id/admin.token"
	# Rotations are written back to the member's own file: it is not replaced.
	if [[ ! -s $dir/$id/gossip.keys ]]; then
		cp "$dir/gossip.keys" "$dir/$id/gossip.keys"
	fi
	if (( EUID == 0 )); then
		chown -R "$owner:$owner" "$dir/$id"
	fi
}

for n in 1 2 3; do member relay "relay-$n"; done
member gate gate-1
for n in {1..9}; do member worker "worker-$n"; done
