package demo_test

import (
	"fmt"

	"github.com/ringway/ringway/internal/demo"
)

// All mistakes are reported together, before anything is started.
func ExampleCommand() {
	cmd := demo.Command()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs([]string{"--workers=0", "--rate=-5", "--for=20", "-o", "yaml", "--kill-every=10ms"})
	fmt.Println(cmd.Execute())

	cmd.SetArgs([]string{"--workers=1", "--rate=5", "--for=20s", "-o", "json", "--kill-every=2s"})
	fmt.Println(cmd.Execute())
	// Output:
	// 5 settings are invalid:
	//   --for "20" (flag --for): the unit is missing; allowed: a duration such as 500ms, 30s or 5m, 0s or more
	//   --kill-every "10ms" (flag --kill-every): not allowed; allowed: a duration such as 500ms, 30s or 5m, 1s or more, or 0
	//   --output "yaml" (flag --output): not allowed; allowed: table, json
	//   --rate "-5" (flag --rate): not allowed; allowed: a number, more than 0, at most 20000
	//   --workers "0" (flag --workers): not allowed; allowed: a whole number, 1 to 200
	// 1 setting is invalid:
	//   --kill-every "2s" (flag --kill-every): the only worker would die, and requests with it; allowed: 0, or --workers 2 or more
}
