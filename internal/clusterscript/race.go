//go:build race

package clusterscript

// Raced says that the race detector runs, which costs five times as much.
const Raced = true
