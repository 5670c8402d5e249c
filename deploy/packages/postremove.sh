#!/bin/sh
# After the removal. Certificates, and the gossip keys in /var/lib/ringway, stay until dpkg
# purges the package. The user stays: its id may still own files.
set -e
if [ "$1" = purge ]; then
	rm -rf /var/lib/ringway /etc/ringway
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
