package report_test

import (
	"fmt"
	"os"

	"github.com/ringway/ringway/sims/internal/report"
	"github.com/ringway/ringway/sims/internal/scenario"
)

// Tables can be read by other programs.
func ExampleWrite() {
	t := &scenario.Table{Name: "load", Title: "load", Columns: []scenario.Column{{Name: "relays", Key: true}, {Name: "p99", Unit: "ms", Digits: 1}}}
	t.Add(3, 41.25)
	if err := report.Write(os.Stdout, "csv", []*scenario.Result{{Scenario: "demo", Tables: []*scenario.Table{t}}}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// # demo/load
	// relays,p99 (ms)
	// 3,41.2
	//
	// # demo/promises
	// promise,bound,value,holds,worst case
}
