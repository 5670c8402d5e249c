//go:build !race

package memnet

func oneProcessor() {}
