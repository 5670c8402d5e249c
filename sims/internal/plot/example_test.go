package plot_test

import (
	"fmt"
	"strings"

	"github.com/ringway/ringway/sims/internal/plot"
	"github.com/ringway/ringway/sims/internal/scenario"
)

// A plot becomes a file that needs nothing else.
func ExampleSVG() {
	p := &scenario.Plot{
		Name: "load", Title: "Latency", Conclusion: "It grows without end.",
		X: scenario.Axis{Label: "load", Unit: "%"}, Y: scenario.Axis{Label: "p99", Unit: "ms"},
	}
	p.Line("p2c").At(50, 40).At(70, 60).At(90, 120)
	svg, err := plot.SVG(p)
	fmt.Println(err, strings.Contains(string(svg), "p99 (ms)"))
	// Output: <nil> true
}
