#!/bin/sh
# Before the removal. dpkg passes "remove", rpm 0; an upgrade passes other values and
# leaves the processes running.
set -e
if { [ "$1" = remove ] || [ "$1" = 0 ]; } && [ -d /run/systemd/system ]; then
	systemctl disable --now ringway-relay.socket ringway-relay.service ringway-worker.service ringway-renew.timer
fi
