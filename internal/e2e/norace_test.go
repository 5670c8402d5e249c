//go:build !race && unix

package e2e

const raceDetector = false
