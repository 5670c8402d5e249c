// Package reference writes the parts of the documentation that the code knows
// best: the verbs and flags of both binaries, the metrics, and the picture of the
// projection.
//
// Promise: what docs/ says of verbs, flags and metrics is what the binaries have; a
// test fails when a file is stale, and `make generate` writes it anew.
//
//	cobra    ──► docs/reference/cli.md
//	settings ──► docs/reference/flags.md
//	registry ──► docs/reference/metrics.md
//	affinity ──► docs/projection.svg
//
// Rules: nothing in a generated file depends on the machine it was written on.
package reference
