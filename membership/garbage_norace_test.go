//go:build !race

package membership

const randomPackets = 1_000_000
