// Package docgen generates the parts of the documentation that follow from the code: the
// commands and flags of both binaries, the metrics, the API of the public packages, and the
// picture of the projection.
//
// Promise: docs/ lists exactly the commands, flags and metrics of the binaries; a test
// fails if a file is stale, and `make generate` writes it again.
//
//	cobra    ──► docs/reference/cli.md
//	settings ──► docs/reference/flags.md
//	registry ──► docs/reference/metrics.md
//	affinity ──► docs/projection.svg
//	source   ──► docs/reference/api/next.txt
//
// Rules: a generated file does not depend on the machine. docs/reference/api has one more file
// for each release, which never changes: what it lists stays, or the changelog names it.
package docgen
