// Command relay accepts requests and forwards them to the workers of a service.
//
//	clients ──► ingress ──► relay ──► workers      (affine to the service)
//	                          └─────► other relay  (otherwise)
//
// The relay is in internal/relay, its command line in internal/command.
package main

import (
	"os"

	"github.com/ringway/ringway/internal/command"
)

func main() { os.Exit(command.Run(command.Relay())) }
