#!/usr/bin/env bash
# Creates the secrets of compose.yaml: an authority, a certificate for each member, a
# gossip key, and a token for the admin API. Each member has a folder, which is mounted
# into its container. Existing files are kept.
#
#   deploy/secrets.sh RELAY_BINARY DIRECTORY
#
# For demos. In production use your own authority, and keep its key off the machines of
# the fleet.
set -euo pipefail
umask 077

if (( $# != 2 )); then
	echo "usage: $0 RELAY_BINARY DIRECTORY" >&2
	exit 2
fi
relay=$1 dir=$2
cluster=shop environment=demo # as in compose.yaml
# The user of the images. Only root can change the owner of a file; for other users the
# containers run as that user: RINGWAY_USER, see `make up`.
owner=65532

mkdir -p "$dir"
if [[ ! -e $dir/ca/ca.key ]]; then
	"$relay" tls ca create --out "$dir/ca" --name ringway-compose --days 365 >/dev/null
fi
if [[ ! -s $dir/gossip.keys ]]; then
	"$relay" keys generate >"$dir/gossip.keys"
fi
if [[ ! -s $dir/admin.token ]]; then
	"$relay" keys generate >"$dir/admin.token" # 32 random bytes also make a token
fi
# Prometheus needs the token too, and runs as another user in its container.
mkdir -p "$dir/prometheus"
cp "$dir/admin.token" "$dir/prometheus/admin.token"
chmod 755 "$dir/prometheus"
chmod 644 "$dir/prometheus/admin.token"

member() { # role id [services]
	local role=$1 id=$2 services=(${3:+--service "$3"})
	mkdir -p "$dir/$id"
	if [[ ! -e $dir/$id/tls.key ]]; then
		"$relay" tls cert create --ca "$dir/ca" --role "$role" --node "$id" --days 300 \
			--cluster "$cluster" --environment "$environment" "${services[@]}" --out "$dir/$id/tls" >/dev/null
	fi
	cp "$dir/ca/ca.crt" "$dir/$id/ca.crt"
	cp "$dir/admin.token" "$dir/$id/admin.token"
	# Rotations write to the member's file, so an existing file is not replaced.
	if [[ ! -s $dir/$id/gossip.keys ]]; then
		cp "$dir/gossip.keys" "$dir/$id/gossip.keys"
	fi
	if (( EUID == 0 )); then
		chown -R "$owner:$owner" "$dir/$id"
	fi
}

for n in 1 2 3; do member relay "relay-$n"; done
member gate gate-1
for n in {1..9}; do member worker "worker-$n" echo; done
