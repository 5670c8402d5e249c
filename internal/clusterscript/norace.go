//go:build !race

package clusterscript

// Raced reports whether the race detector runs, which costs five times as much.
const Raced = false
