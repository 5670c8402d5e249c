// Command relay accepts requests and forwards them to the workers of a service.
//
//	clients ──► ingress ──► relay ──► workers      (affine to the service)
//	                          └─────► other relay  (otherwise)
//
// The relay is in internal/relay, its command line in internal/command/relaycmd.
package main

import (
	"os"

	"github.com/ringway/ringway/internal/command"
	"github.com/ringway/ringway/internal/command/relaycmd"
)

func main() { os.Exit(command.Run(relaycmd.Command())) }
