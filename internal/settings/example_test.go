package settings_test

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/ringway/ringway/internal/settings"
)

// One declaration gives a flag, an environment variable and a file key. All
// mistakes are reported together.
func Example() {
	cfg := struct {
		Cluster string
		Peers   int
		Level   string
	}{Peers: 3, Level: "info"} // the defaults

	set := settings.New("relay", "RINGWAY")
	settings.String(set, &cfg.Cluster, settings.Spec{Name: "cluster", Usage: "cluster to join", Required: true})
	settings.Int(set, &cfg.Peers, settings.Spec{Name: "min-peers-per-worker", Usage: "relays that serve a worker"}, settings.AtLeast(3))
	settings.Enum(set, &cfg.Level, settings.Spec{Name: "log-level", Usage: "least level logged"}, "debug", "info", "warn", "error")

	flags := pflag.NewFlagSet("relay", pflag.ContinueOnError)
	set.BindFlags(flags)
	_ = flags.Parse([]string{"--min-peers-per-worker=2"})
	environ := []string{"RINGWAY_LOG_LEVEL=loud"}
	fmt.Println(set.Load(settings.Sources{Environ: environ}))

	_ = flags.Parse([]string{"--min-peers-per-worker=4", "--cluster=prod"})
	if err := set.Load(settings.Sources{}); err != nil {
		fmt.Println(err)
	}
	for _, value := range set.Values() {
		fmt.Printf("%s=%s (%s)\n", value.Name, value.Value, value.Origin)
	}

	// Output:
	// 3 settings are invalid:
	//   --cluster: required; give --cluster, RINGWAY_CLUSTER or the file key "cluster"
	//   --log-level "loud" (environment RINGWAY_LOG_LEVEL): not allowed; allowed: debug, info, warn, error
	//   --min-peers-per-worker "2" (flag --min-peers-per-worker): not allowed; allowed: a whole number, 3 or more
	// config= (default)
	// cluster=prod (flag --cluster)
	// min-peers-per-worker=4 (flag --min-peers-per-worker)
	// log-level=info (default)
}
