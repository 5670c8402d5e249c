//go:build race

package peering_test

const raceEnabled = true
