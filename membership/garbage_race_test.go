//go:build race

package membership

// The race detector makes memberlist ten times slower than the sender.
const randomPackets = 50_000
