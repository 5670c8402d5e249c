// Package reference generates the parts of the documentation that follow from the code: the
// commands and flags of both binaries, the metrics, and the picture of the projection.
//
// Promise: docs/ lists exactly the commands, flags and metrics of the binaries; a test
// fails if a file is stale, and `make generate` writes it again.
//
//	cobra    ──► docs/reference/cli.md
//	settings ──► docs/reference/flags.md
//	registry ──► docs/reference/metrics.md
//	affinity ──► docs/projection.svg
//
// Rules: a generated file does not depend on the machine.
package reference
