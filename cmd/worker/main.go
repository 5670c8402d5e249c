// Command worker runs next to a service instance and offers it to the relays. The worker is
// in internal/worker, its command line in internal/command.
package main

import (
	"os"

	"github.com/ringway/ringway/internal/command"
)

func main() { os.Exit(command.Run(command.Worker())) }
