//go:build race && unix

package e2e

// raceDetector reports whether the binaries are built with it, as these tests are.
const raceDetector = true
