#!/bin/sh
# After an installation or an upgrade: the user, and its directories. No unit is enabled,
# started or restarted: settings and certificates come first, and an operator restarts a
# fleet one host after the other.
set -e
systemd-sysusers ringway.conf
chgrp ringway /etc/ringway
install -d -m 700 -o ringway -g ringway /var/lib/ringway
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
