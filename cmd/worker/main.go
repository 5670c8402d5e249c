// Command worker runs next to a service instance and offers it to the relays. The worker is
// in internal/worker, its command line in internal/command/workercmd.
package main

import (
	"os"

	"github.com/ringway/ringway/internal/command"
	"github.com/ringway/ringway/internal/command/workercmd"
)

func main() { os.Exit(command.Run(workercmd.Command())) }
