// Command release builds what a release consists of, into one directory:
//
//	ringway_VERSION_OS_ARCH.tar.gz     both binaries, man pages, completions, licences; on Linux the units
//	ringway_VERSION_OS_ARCH.spdx.json  the SBOM of these binaries
//	ringway_VERSION_ARCH.deb, ringway-VERSION-1.ARCH.rpm
//	ringway-VERSION.tgz, ringway-worker-VERSION.tgz  the Helm charts
//	checksums.txt                      SHA-256 of all of them
//
// Promise: the same commit and the same version of Go give the same bytes. The SBOM and
// the notices contain exactly the modules that the linker put into the binaries. A module
// whose licence is not one of those in licences.go fails the release.
//
//	go build ──► stage ──┬──► archive
//	               ▲     └──► nfpm ──► deb, rpm    (deploy/packages)
//	build info ──► SBOM, notices
//
// Rules: only the standard library. All files of a stage have the date of the commit and
// fixed modes, so that no archive depends on the checkout or on the umask. The program
// uploads nothing.
package main
