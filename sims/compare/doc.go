// Command compare measures Ringway's selection beside the p2c selector of
// go-kratos and prints the ratio.
//
// It is a module of its own, so that the product does not depend on what it is
// compared with. Both sides do the same work per operation: choose one of n
// endpoints, give it back as a success, with the clock reads included.
//
//	go run . -rounds 7
//	go test -bench .
package main
