package process_test

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/ringway/ringway/internal/process"
)

// A daemon introduces itself before its first log line.
func Example() {
	logger, err := process.NewLogger(os.Stdout, "info", "console")
	if err != nil {
		fmt.Println(err)
		return
	}
	banner := process.Banner{
		Title: "relay v1.2.3",
		Rows: []slog.Attr{
			slog.String("cluster", "prod"),
			slog.String("environment", "eu"),
			slog.String("gossip", "10.0.0.1:7400, encrypted"),
			slog.String("ingress", ":7410, clear text"),
		},
	}
	if err := banner.Show(os.Stdout, logger, "console"); err != nil {
		fmt.Println(err)
	}
	// Output:
	// relay v1.2.3
	//
	//       cluster  prod
	//   environment  eu
	//        gossip  10.0.0.1:7400, encrypted
	//       ingress  :7410, clear text
}
